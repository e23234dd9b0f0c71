"""The AG-UI side: reading the input, the order of events, and their bytes."""
