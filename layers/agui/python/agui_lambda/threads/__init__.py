"""Conversations: what a thread is (`thread.py`), and how it lies in DynamoDB (`dynamodb.py`)."""
