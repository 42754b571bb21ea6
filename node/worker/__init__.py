"""Process 2: slots through the model."""
