"""One machine's server: reader → ring → workers → writer, watched by a supervisor."""
