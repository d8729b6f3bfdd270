"""What an engine was made from and for: its key, and the readable file beside it."""
