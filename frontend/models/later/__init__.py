"""Calls that are answered later: kept in Redis until the result is fetched, called back or expired."""
