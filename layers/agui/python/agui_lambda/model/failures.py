"""What a provider's failure means: the error that the client is told, and whether asking again may help."""

from __future__ import annotations

from collections.abc import Mapping

from agui_lambda import errors

PATIENCE = 5.0
"""Seconds that a run waits because a provider asks it to. Longer than that, the person had better know."""
RETRY_DELAY = 0.5
"""Seconds before a request is repeated when the provider names no time; doubled each time."""
RETRIED = frozenset({408, 409, 429, 500, 502, 503, 504, 529})

REFUSALS: dict[int, type[errors.RunError]] = {
    401: errors.ModelUnauthorized,
    403: errors.ModelUnauthorized,
    404: errors.ModelNotFound,
    408: errors.ModelSilent,
    429: errors.ModelBusy,
}


def delay(status: int | None, headers: Mapping[str, str], attempt: int) -> float | None:
    """Seconds until a request is worth repeating; None: it is not. `status` None: there was no answer at all.

    Providers say it in `Retry-After` (RFC 9110, 10.2.3; seconds only), `retry-after-ms` and `x-should-retry`.
    """
    if status is not None and (status not in RETRIED or headers.get("x-should-retry") == "false"):
        return None
    asked = None
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            asked = float(headers[name]) * unit
            break
        except (KeyError, ValueError):
            continue
    if asked is None:
        return RETRY_DELAY * 2.0**attempt
    return asked if 0 <= asked <= PATIENCE else None


def in_our_words(error: Exception, begun: bool) -> errors.RunError:
    """The error of a run for an exception of the openai package or its transport; `begun`: in mid-answer.

    Its detail, which goes to the log, is made of types, codes and addresses. The provider's own words may hold the
    prompt or the key, and a `repr` the request's headers.
    """
    import openai

    if isinstance(error, openai.APIStatusError):
        status = error.status_code
        kind = REFUSALS.get(status, errors.ModelFailed if status >= 500 else errors.ModelRefused)
        return kind(f"the provider answered {status}, code {error.code!s:.100}, request {error.request_id!s:.100}")
    cause = error.__cause__ or error
    detail = f"{type(error).__name__}, {type(cause).__name__}"
    if isinstance(cause, OSError):
        detail += f": {cause.strerror or cause!s:.200}"
    return errors.ModelCut(detail) if begun else errors.ModelUnreachable(detail)
