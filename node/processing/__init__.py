"""What happens to a record before and after the model."""
