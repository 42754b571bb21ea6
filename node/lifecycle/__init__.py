"""From a command line to a node that serves, to another model, and to the end."""
