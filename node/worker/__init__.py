"""Process 2: runs the model on slots."""
