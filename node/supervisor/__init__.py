"""Keeps the lanes alive: children started, watched, replaced, drained; changes; the heartbeat."""
