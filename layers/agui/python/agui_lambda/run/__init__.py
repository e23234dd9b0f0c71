"""One run: from a checked input to the terminal event."""
