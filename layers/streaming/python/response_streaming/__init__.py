"""Response streaming for ASGI apps on AWS Lambda's managed Python runtime.

`handler = StreamingMangum(app)` is the whole interface. The exec wrapper beside this package starts
`bootstrap.py`, which drives that handler; under the stock runtime the same handler answers buffered, like Mangum.
"""

from response_streaming.adapter import StreamingMangum

__all__ = ["StreamingMangum"]
