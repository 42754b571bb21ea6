"""Configuration and process of node, frontend and swarm; a program that uses the client imports none of it."""
