"""Small models that the tests serve."""

from pathlib import Path

MODELS = Path(__file__).parent
