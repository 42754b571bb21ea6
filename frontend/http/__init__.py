"""Sanic made stricter and quicker: connections, bodies, responses; the errors with their HTTP statuses."""
