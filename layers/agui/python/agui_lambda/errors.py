"""The errors of this package. Their `code` is stable and their `message` is meant for the person at the other end;
details go to the log."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any


class RequestError(Exception):
    """A request that is refused before a run begins, by an HTTP status and a JSON body."""

    def __init__(self, status: HTTPStatus, code: str, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.field = field

    def body(self) -> dict[str, Any]:
        """`{"code", "message"}`, and `field` (a path like `messages.0.role`) when one member is to blame."""
        document = {"code": self.code, "message": self.message}
        return {**document, "field": self.field} if self.field is not None else document


class RunError(Exception):
    """A run that fails after it began: becomes RUN_ERROR. `str(error)` is for the log and may hold details."""

    code = "INTERNAL"
    message = "Something went wrong. Please try again."

    def __init__(self, detail: str = "") -> None:
        super().__init__(detail or self.message)


class RunTimeout(RunError):
    code = "TIMEOUT"
    message = "The time for this answer ran out. Whatever was said until then is kept."


class ThreadBusy(RunError):
    code = "THREAD_BUSY"
    message = "Another answer is being written in this conversation. Please wait for it to end."


class ThreadLost(RunError):
    code = "THREAD_LOST"
    message = "This conversation was taken over by another run, so this answer could not be kept."


class ThreadUnavailable(RunError):
    code = "THREAD_UNAVAILABLE"
    message = "The conversation could not be loaded or saved. Please try again."


class MessageTooLarge(RunError):
    code = "MESSAGE_TOO_LARGE"
    message = "A message is too large to be kept."


class ModelUnreachable(RunError):
    code = "MODEL_UNREACHABLE"
    message = "The model could not be reached. Please try again."


class ModelUnauthorized(RunError):
    code = "MODEL_UNAUTHORIZED"
    message = "The model does not accept this agent's key. Whoever runs the agent must set another."


class ModelBusy(RunError):
    code = "MODEL_RATE_LIMITED"
    message = "The model has too many requests or no quota left. Please try again later."


class ModelRefused(RunError):
    code = "MODEL_REFUSED"
    message = "The model did not accept the request."


class ModelNotFound(RunError):
    code = "MODEL_NOT_FOUND"
    message = "There is no such model at this address. Whoever runs the agent must check its name and base URL."


class ModelFailed(RunError):
    code = "MODEL_ERROR"
    message = "The model failed while it was answering. Whatever was said until then is kept."


class ModelCut(RunError):
    code = "MODEL_STREAM_CUT"
    message = "The model's answer broke off. Whatever was said until then is kept."


class ModelSilent(RunError):
    code = "MODEL_TIMEOUT"
    message = "The model was silent for too long. Whatever was said until then is kept."
