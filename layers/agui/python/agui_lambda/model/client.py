"""The connection to the model's provider: one openai client per environment, and its failures in our words."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from agui_lambda import errors
from agui_lambda.model.chat_completions import ChatCompletionsReader
from agui_lambda.model.deltas import Delta
from agui_lambda.secrets import Secret

if TYPE_CHECKING:
    from openai import AsyncOpenAI

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT = 5.0
"""Seconds until a provider that does not answer the phone counts as unreachable."""
AFTERMATH = 0.5
"""Seconds a provider gets, after its answer is complete, to count tokens and end the body. A body that was read to
its end leaves a connection that the next turn can use."""


class ModelClient:
    """Talks to the provider that `OPENAI_BASE_URL` and `OPENAI_API_KEY` (or `OPENAI_API_KEY_SECRET`) name.

    The openai package is imported with the first use, in a thread: it takes 0.3 s, and a run has begun by then.
    """

    def __init__(self, key: Secret) -> None:
        self._key = key
        self._client: AsyncOpenAI | None = None
        self._lock = asyncio.Lock()

    async def warm_up(self) -> AsyncOpenAI:
        """Makes the client, once. Raises ModelUnauthorized when there is no key."""
        async with self._lock:
            if self._client is None:
                key = await self._key.value()
                if not key:
                    raise errors.ModelUnauthorized("no key: set OPENAI_API_KEY, or OPENAI_API_KEY_SECRET on AWS")
                self._client = await asyncio.to_thread(_make_client, key)
        return self._client

    async def stream(
        self, model: str, messages: list[dict[str, Any]], options: Mapping[str, Any], timeout: float
    ) -> AsyncGenerator[list[Delta]]:
        """The answer as it comes: a list holds what arrived together.

        `timeout`: seconds of silence that are borne. Raises the Model… errors of `errors`. Retries, by the openai
        package, happen only as long as nothing of the answer was read.
        """
        client = await self.warm_up()
        import openai

        try:
            # `extra_body` goes out as it is; given as `messages` it would be walked field by field, 0.1 ms a message.
            async with (
                client.chat.completions.with_streaming_response.create(
                    model=model,
                    messages=[],
                    stream=True,
                    extra_body={"stream_options": {"include_usage": True}, **options, "messages": messages},
                    timeout=_timeouts(timeout),
                ) as response,
                aclosing(_read(response.iter_bytes())) as answer,
            ):
                async for deltas in answer:
                    yield deltas
        except openai.APIStatusError as error:
            raise _refusal(error.status_code, error.response.text) from error
        except openai.APITimeoutError as error:
            raise errors.ModelSilent(str(error)) from error
        except openai.APIConnectionError as error:
            raise errors.ModelUnreachable(repr(error.__cause__ or error)) from error

    async def close(self) -> None:
        """Closes the connections to the provider."""
        if self._client is not None:
            await self._client.close()


async def _read(body: AsyncIterator[bytes]) -> AsyncGenerator[list[Delta]]:
    import httpx2

    reader = ChatCompletionsReader()
    try:
        while not reader.complete:
            try:
                piece = await anext(body)
            except StopAsyncIteration:
                break
            if deltas := reader.feed(piece):
                yield deltas
        # The answer is whole, or the body is over. A provider that then lingers must not hold up the end of the run.
        rest: list[Delta] = []
        try:
            async with asyncio.timeout(AFTERMATH):
                async for piece in body:
                    rest += reader.feed(piece)
        except (TimeoutError, httpx2.HTTPError) as lingering:
            logger.info("the provider did not end its body: %r", lingering)
        if not reader.done:
            rest += reader.end()
        if rest:
            yield rest
    except httpx2.TimeoutException as error:
        raise errors.ModelSilent(repr(error)) from error
    except httpx2.HTTPError as error:
        raise errors.ModelCut(repr(error)) from error


def _make_client(key: str) -> AsyncOpenAI:
    from openai import AsyncOpenAI, DefaultAioHttpClient

    return AsyncOpenAI(api_key=key, http_client=DefaultAioHttpClient())


def _timeouts(silence: float) -> Any:
    import httpx2

    return httpx2.Timeout(silence, connect=CONNECT_TIMEOUT)


def _refusal(status: int, detail: str) -> errors.RunError:
    kinds: dict[int, type[errors.RunError]] = {
        401: errors.ModelUnauthorized,
        403: errors.ModelUnauthorized,
        429: errors.ModelBusy,
    }
    kind = kinds.get(status, errors.ModelFailed if status >= 500 else errors.ModelRefused)
    return kind(f"the provider answered {status}: {detail[:500]}")


def default_model() -> str:
    """The model of agents that name none."""
    return os.environ.get("OPENAI_MODEL") or "gpt-5-mini"
