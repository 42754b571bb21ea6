"""Supervision of the lanes: start, watch, replace and drain child processes, change the model, publish the heartbeat."""
