"""Configuration and processes of node, frontend and swarm. A program that uses the client does not import the folder."""
