"""Cluster Serving: model serving for CPU clusters over a Redis stream."""

__version__ = "0.1.0.dev0"
