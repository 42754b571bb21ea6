"""Small model of handwritten digits, and images to try the model with. `train.py` made both."""
