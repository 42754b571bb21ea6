"""Life of a node: start from a command line, change of the model, and stop."""
