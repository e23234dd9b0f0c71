"""One run of an agent: thread, model, events, in this order, and one way out whatever happens.

Order of the last second: commit, then the terminal event, then the body closes. The rules of the event stream are in
`events/stream.py`, those of the thread in `threads/`.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from agui_lambda import errors
from agui_lambda.agent import Agent
from agui_lambda.deployment import Deployment
from agui_lambda.events.input import RunInput
from agui_lambda.events.stream import Encoder, EventStream
from agui_lambda.model.client import default_model
from agui_lambda.model.deltas import Delta, Text, Usage
from agui_lambda.model.request import chat_messages
from agui_lambda.threads.merge import Message
from agui_lambda.threads.thread import Thread, ThreadKey

logger = logging.getLogger(__name__)

Write = Callable[[bytes], Awaitable[None]]

RESERVE = 3.0
"""Seconds before the environment is killed at which an answer is ended, so that it can be kept and its end sent."""
LAST_WORD = 0.5
"""Seconds before it at which the terminal event goes out, kept or not."""
PATIENCE = 30.0
"""Seconds that keeping an answer may take where nobody is killed."""


class Run:
    """Call `run` once. `remaining`: seconds until the environment is killed; None: it is not."""

    def __init__(
        self,
        agent: Agent,
        run_input: RunInput,
        key: ThreadKey,
        deployment: Deployment,
        encoder: Encoder,
        remaining: float | None = None,
    ) -> None:
        self._agent = agent
        self._input = run_input
        self._key = key
        self._deployment = deployment
        self._events = EventStream(encoder, run_input.thread_id, run_input.run_id)
        now = asyncio.get_running_loop().time()
        self._killed_at = None if remaining is None else now + remaining
        self._thread: Thread | None = None
        self._model = agent.model or default_model()
        self._message_id = f"msg_{uuid.uuid4().hex}"
        self._text: list[str] = []
        self._usage: Usage | None = None

    async def run(self, write: Write) -> None:
        """Writes every event of the run. Raises nothing but what `write` raises when nobody reads any more, and
        CancelledError; what was answered until then is kept in the thread."""
        await write(self._events.started(self._input.parent_run_id))
        try:
            async with asyncio.timeout_at(None if self._killed_at is None else self._killed_at - RESERVE):
                await self._answer(write)
        except errors.RunError as error:
            failure = error
        except TimeoutError:
            failure = errors.RunTimeout()
        except (asyncio.CancelledError, ConnectionError):
            await asyncio.shield(self._keep())
            raise
        except Exception as error:
            failure = errors.RunError(type(error).__name__)
            logger.exception("run %.100r of thread %.100r crashed", self._input.run_id, self._input.thread_id)
        else:
            await self._end(write)
            return
        await self._fail(write, failure)

    async def _answer(self, write: Write) -> None:
        self._thread = await Thread.take(self._deployment.threads, self._key, self._input.messages, self._agent.history)
        if not self._thread.messages:
            return  # a new thread without a message: there is nothing to answer
        messages = chat_messages(self._agent, self._input, self._thread.messages)
        stream = self._deployment.model.stream(
            self._model, messages, self._agent.model_options, self._agent.model_timeout
        )
        async with aclosing(stream):
            async for deltas in stream:
                # What arrived together leaves together; a lone token leaves at once.
                if frames := b"".join(map(self._frame, deltas)):
                    await write(frames)
        if closing := self._events.close():
            await write(closing)

    def _frame(self, delta: Delta) -> bytes:
        match delta:
            case Text(text):
                self._text.append(text)
                return self._events.text(self._message_id, text)
            case Usage():
                self._usage = delta
                return b""

    async def _end(self, write: Write) -> None:
        try:
            await self._commit()
        except errors.RunError as failure:
            await self._fail(write, failure)
        else:
            await write(self._events.finished(self._token_usage()))

    async def _fail(self, write: Write, failure: errors.RunError) -> None:
        run, thread = self._input.run_id, self._input.thread_id
        logger.error("run %.100r of thread %.100r failed: %s %s", run, thread, failure.code, failure)
        await self._keep()
        await write(self._events.failed(failure.code, failure.message))

    async def _keep(self) -> None:
        """Commits a run that already has another failure to tell."""
        try:
            await self._commit()
        except errors.RunError as second:
            logger.error("run %.100r could not be kept: %s", self._input.run_id, second)

    async def _commit(self) -> None:
        """Keeps what was answered, whole or not, and frees the thread; once. Raises nothing but RunErrors, and in time
        for the terminal event to be sent."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        now = asyncio.get_running_loop().time()
        until = now + PATIENCE if self._killed_at is None else self._killed_at - LAST_WORD
        try:
            async with asyncio.timeout_at(until):
                answer: Message = {"id": self._message_id, "role": "assistant", "content": "".join(self._text)}
                await thread.give_back([answer] if self._text else [])
        except errors.RunError:
            raise
        except Exception as error:
            logger.exception("run %.100r could not be kept", self._input.run_id)
            raise errors.ThreadUnavailable(type(error).__name__) from error

    def _token_usage(self) -> list[dict[str, str | int]]:
        """AG-UI's TokenUsage; a count that the provider did not report is left out."""
        if self._usage is None:
            return []
        counts = {
            "inputTokens": self._usage.input_tokens,
            "outputTokens": self._usage.output_tokens,
            "totalTokens": self._usage.total_tokens,
        }
        return [{"model": self._model, **{name: count for name, count in counts.items() if count is not None}}]
