"""What the frontend answers: one file a kind of client."""
