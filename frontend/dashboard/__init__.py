"""The dashboard: its page, the figures on it, and their last hour."""
