"""A small model of handwritten digits and images to try it with: `train.py` made both."""
