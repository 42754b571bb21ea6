"""Models that can be called, how often, and the way to them and back."""
