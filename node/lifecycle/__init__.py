"""Life of a node: start from a command line, hot swap of the model, and stop."""
