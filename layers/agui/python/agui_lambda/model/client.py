"""The connection to the model's provider: one openai client per environment, and its failures in our words."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from agui_lambda import errors
from agui_lambda.model import failures
from agui_lambda.model.chat_completions import ChatCompletionsReader
from agui_lambda.model.deltas import Delta
from agui_lambda.secrets import Secret

if TYPE_CHECKING:
    from openai import AsyncAPIResponse, AsyncOpenAI

logger = logging.getLogger(__name__)

OPENAI = "https://api.openai.com/v1"
CONNECT_TIMEOUT = 5.0
"""Seconds until a provider that does not answer the phone counts as unreachable."""
RETRIES = 2
"""How often a request is repeated that got no answer, or one that says to try again."""
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
        """Makes the client, once. Raises ModelUnauthorized when there is no key, or it cannot be fetched."""
        async with self._lock:
            if self._client is None:
                self._client = await asyncio.to_thread(_make_client, await self._get_key())
        return self._client

    async def _get_key(self) -> str:
        try:
            key = await self._key.value()
        except Exception as error:
            # A secret that has no value yet is the usual reason; the next run looks again.
            raise errors.ModelUnauthorized(f"the key cannot be fetched: {error}") from error
        if key is None and _address() != OPENAI:
            return "none"  # a model of one's own may ask for no key, but the openai package wants one
        if not key:
            raise errors.ModelUnauthorized("no key: set OPENAI_API_KEY, or OPENAI_API_KEY_SECRET on AWS")
        return key

    async def stream(
        self, model: str, messages: list[dict[str, Any]], options: Mapping[str, Any], silence: float
    ) -> AsyncGenerator[list[Delta]]:
        """The answer as it comes: a list holds what arrived together.

        `silence`: seconds that may pass until the answer begins, retries included, and between two pieces of it.
        Raises the Model… errors of `errors`. A request is repeated only as long as its answer has not begun.
        """
        client = await self.warm_up()
        reader = ChatCompletionsReader()
        begun = False
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(silence):
                    response = await _begin(stack, client, model, messages, options)
                begun = True
                body = response.iter_bytes()
                while not (reader.complete or reader.ended):
                    async with asyncio.timeout(silence):
                        piece = await anext(body, None)
                    yield reader.feed(piece) if piece is not None else reader.end()
                    if reader.failure is not None:
                        raise reader.failure
                yield await _aftermath(body, reader)
        except (errors.RunError, asyncio.CancelledError):
            raise
        except TimeoutError as error:
            raise errors.ModelSilent(f"nothing came for {silence:g} s") from error
        except Exception as error:
            ours = failures.in_our_words(error, begun)
            if isinstance(ours, errors.ModelUnauthorized):
                await self._forget()
            raise ours from error

    async def close(self) -> None:
        """Closes the connections to the provider."""
        if self._client is not None:
            await self._client.close()

    async def _forget(self) -> None:
        """A key that is refused may have been replaced: the next run fetches it anew."""
        self._key.forget()
        client, self._client = self._client, None
        if client is not None:
            await client.close()


async def _begin(
    stack: AsyncExitStack, client: AsyncOpenAI, model: str, messages: list[dict[str, Any]], options: Mapping[str, Any]
) -> AsyncAPIResponse[Any]:
    """The response, entered into `stack`, once it has begun.

    The openai package's own retries are off: they wait for a minute if a provider says so, at Lambda's price.
    """
    import openai

    for attempt in itertools.count():
        # `extra_body` goes out as it is; as `messages` it would be walked field by field, 0.1 ms a message.
        request = client.chat.completions.with_streaming_response.create(
            model=model,
            messages=[],
            stream=True,
            extra_body={"stream_options": {"include_usage": True}, **options, "messages": messages},
        )
        try:
            return await stack.enter_async_context(request)
        except openai.APIConnectionError:
            wait = failures.delay(None, {}, attempt)
            if attempt == RETRIES:
                raise
        except openai.APIStatusError as refused:
            wait = failures.delay(refused.status_code, refused.response.headers, attempt)
            if attempt == RETRIES or wait is None:
                raise
        logger.info("the model is asked again in %s s", wait)
        await asyncio.sleep(wait or 0)
    raise AssertionError("unreachable")


async def _aftermath(body: AsyncIterator[bytes], reader: ChatCompletionsReader) -> list[Delta]:
    """What follows the end of the answer. A provider that lingers must not hold up the end of the run."""
    rest: list[Delta] = []
    try:
        async with asyncio.timeout(AFTERMATH):
            async for piece in body:
                rest += reader.feed(piece)
    except Exception as lingering:
        logger.info("the provider did not end its body: %s", type(lingering).__name__)
    return rest


def _make_client(key: str) -> AsyncOpenAI:
    import httpx2
    from openai import AsyncOpenAI, DefaultAioHttpClient

    address = _address()
    if not address.startswith(("http://", "https://")):
        raise errors.ModelUnreachable(f"OPENAI_BASE_URL is {address[:200]!r}; it must begin with http:// or https://")
    logger.info("the model is at %s", address)
    # How long it may be silent is measured in `stream`, for any transport.
    timeout = httpx2.Timeout(None, connect=CONNECT_TIMEOUT)
    http = DefaultAioHttpClient(timeout=timeout)
    return AsyncOpenAI(api_key=key, base_url=address, max_retries=0, http_client=http)


def _address() -> str:
    """A variable that is set to nothing is as good as none."""
    return os.environ.get("OPENAI_BASE_URL") or OPENAI


def default_model() -> str:
    """The model of agents that name none."""
    return os.environ.get("OPENAI_MODEL") or "gpt-5-mini"
