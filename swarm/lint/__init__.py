"""Checks of a stack before it is deployed. Each file has one subject, and a function from the stack to its findings."""
