"""Measurements: one file a question, each run by `python -m bench.NAME`."""
