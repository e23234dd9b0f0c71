"""Who is calling: nobody gets in by default."""

from __future__ import annotations

import hmac
import logging
import os
from http import HTTPStatus
from typing import Protocol

from starlette.requests import Request

from agui_lambda.errors import RequestError
from agui_lambda.secrets import Secret

logger = logging.getLogger(__name__)

SINGLE_OWNER = "owner"
"""Whose threads they are where callers are not told apart; the same with a token and without, so that setting one
loses no conversation."""


class Access(Protocol):
    """Decides who a request comes from."""

    async def owner(self, request: Request) -> str:
        """The caller, as the owner of threads. Raises RequestError when the request may not pass."""
        ...

    async def warm_up(self) -> None:
        """Fetches what is needed to decide, ahead of the first request."""
        ...


class TokenAccess:
    """One bearer token for everybody (RFC 6750); all who know it are the same owner.

    The token is `ACCESS_TOKEN`, or in the Secrets Manager secret that `ACCESS_TOKEN_SECRET` names.
    """

    def __init__(self) -> None:
        self._token = Secret("ACCESS_TOKEN")

    async def owner(self, request: Request) -> str:
        given = request.headers.get("authorization", "").strip()
        if given[:7].lower() == "bearer ":  # a token without the word is as good, and what a person pastes into a page
            given = given[7:].strip()
        try:
            token = await self._token.value()
        except Exception as error:
            logger.exception("the token cannot be fetched")
            raise RequestError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "ACCESS_UNAVAILABLE",
                "Who is calling cannot be checked at the moment. Please try again.",
            ) from error
        if not token:
            raise RequestError(
                HTTPStatus.UNAUTHORIZED,
                "NO_TOKEN_CONFIGURED",
                "This agent has no token, so nobody gets in. Set ACCESS_TOKEN or ACCESS_TOKEN_SECRET, or ACCESS=none "
                "to let everybody in.",
            )
        if not hmac.compare_digest(given.encode(), token.encode()):
            raise RequestError(
                HTTPStatus.UNAUTHORIZED, "UNAUTHORIZED", "This agent wants a token: send Authorization: Bearer <token>."
            )
        return SINGLE_OWNER

    async def warm_up(self) -> None:
        await self._token.value()


class OpenAccess:
    """Everybody gets in. For a laptop."""

    async def owner(self, request: Request) -> str:
        return SINGLE_OWNER

    async def warm_up(self) -> None:
        pass


def from_environment() -> Access:
    """The access that `ACCESS` names: `token` (the default) or `none`. Raises ValueError for anything else."""
    kind = os.environ.get("ACCESS", "token")
    if kind == "token":
        return TokenAccess()
    if kind == "none":
        return OpenAccess()
    raise ValueError(f"ACCESS is {kind!r}; it can be 'token' or 'none'")
