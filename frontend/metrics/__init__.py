"""Counts in memory shared by all processes, and the formats that publish the counts."""
