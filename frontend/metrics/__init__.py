"""Counts in memory that all processes share, and the formats they are told in."""
