"""Sanic made stricter and quicker: connections, bodies, responses."""
