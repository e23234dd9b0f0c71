"""The exceptions of this package."""


class RuntimeApiError(Exception):
    """The Runtime API answered something that ends this environment, for example anything but 200 to `next`."""


class ResponseRefused(ConnectionError):
    """Lambda stopped taking the response: the caller is gone, a limit was reached, or the connection broke.

    A ConnectionError, so that an ASGI app meets what it knows from a client that left.
    """
