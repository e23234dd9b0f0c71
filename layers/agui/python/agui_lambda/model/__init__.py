"""The model's side: requests to an OpenAI-compatible provider, and its stream as deltas."""
