"""Helpers, models and programs that the tests share."""
