"""One file an API, and the gate that every request passes."""
