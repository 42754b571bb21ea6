"""Settings of a server: flag, then environment, then file, then default; what can be set is the server's own business."""
