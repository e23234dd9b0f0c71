"""The exceptions of this package."""


class RuntimeApiError(Exception):
    """The Runtime API answered something that ends this environment, for example anything but 200 to `next`."""


class ResponseRefused(ConnectionError):
    """Lambda stopped taking the response: the caller is gone, a limit was reached, or the connection broke.

    A ConnectionError, so that an ASGI app meets what it knows from a client that left.
    """


class InitFailed(Exception):
    """The environment cannot be initialised, because of `error`; the process ends with `exit_code`.

    `kind` is the error type that Lambda is told; None: the type of `error`.
    """

    def __init__(self, error: Exception, exit_code: int = 1, kind: str | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.exit_code = exit_code
        self.kind = kind
