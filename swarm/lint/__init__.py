"""What is wrong with a stack, before it is deployed: one file a matter, each a function from the stack to its findings."""
