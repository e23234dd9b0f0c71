"""What a thread is: a chain of messages, a head that is moved when they are safe, and a lease that one run holds.

Every message is an item of its own that is never changed and names the one before it. Writing messages makes nothing
visible; moving the head does, in one conditional update. So a reader never sees half a turn, a run that lost its lease
cannot publish, an edit is a new branch of the chain, and a killed run leaves the thread as it was. How items are
stored is in `dynamodb.py`; which messages a client's list means is in `merge.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from agui_lambda.errors import ThreadBusy, ThreadLost
from agui_lambda.threads.merge import History, Message, merge

logger = logging.getLogger(__name__)

LEASE_SECONDS = 30.0
"""How long a thread stays taken when its run dies; a living run renews its lease three times as often."""


@dataclass(frozen=True, slots=True)
class ThreadKey:
    """A thread belongs to its owner and to the address its agent is served at."""

    owner: str
    agent: str
    thread_id: str


@dataclass(frozen=True, slots=True)
class Link:
    """A message in the chain. `position` counts from 0; `key` is unique, so that two runs never write the same item."""

    key: str
    previous: str | None
    position: int
    message: Message


@dataclass(frozen=True, slots=True)
class Stored:
    """A thread as it lies in the store. `links` may hold more than the chain: what was discarded or never published."""

    head: str | None
    links: dict[str, Link]
    leased_until: float = 0.0
    """Seconds since the epoch."""


class Store(Protocol):
    """Where threads lie. Every method may raise ThreadUnavailable."""

    async def load(self, key: ThreadKey) -> Stored: ...

    async def write(self, key: ThreadKey, links: Sequence[Link]) -> None:
        """Stores messages, not visible yet. Raises MessageTooLarge."""

    async def take(self, key: ThreadKey, loaded_head: str | None, head: str | None, lease: str, until: float) -> bool:
        """Moves the head and takes the lease, if the head is still `loaded_head` and nobody holds a living lease."""

    async def publish(self, key: ThreadKey, head: str | None, lease: str, until: float | None) -> bool:
        """Moves the head and renews the lease (`until`), or gives it back (None), if `lease` is still the holder."""


class Thread:
    """A thread taken by one run. `messages` is the conversation, oldest first."""

    def __init__(self, store: Store, key: ThreadKey, chain: list[Link], lease: str) -> None:
        self._store = store
        self._key = key
        self._chain = chain
        self._lease = lease
        self._renewal: asyncio.Task[None] | None = None

    @classmethod
    async def take(cls, store: Store, key: ThreadKey, sent: Sequence[Message], history: History = "auto") -> Thread:
        """Loads the thread, merges what the client sent into it, stores that, and takes the lease.

        From here on the client's message is safe. Raises ThreadBusy when another run has the thread.
        """
        stored = await store.load(key)
        if stored.leased_until > time.time():
            raise ThreadBusy
        chain = _chain(stored)
        kept, new = merge([link.message for link in chain], sent, history)
        thread = cls(store, key, chain[:kept], lease=secrets.token_hex(8))
        await thread._write(new)
        until = time.time() + LEASE_SECONDS
        if not await store.take(key, stored.head, thread._head, thread._lease, until):
            raise ThreadBusy
        thread._renewal = asyncio.create_task(thread._renew())
        return thread

    @property
    def messages(self) -> list[Message]:
        return [link.message for link in self._chain]

    async def give_back(self, answer: Sequence[Message]) -> None:
        """Stores and publishes the run's messages and ends the lease, in one step.

        Raises ThreadLost when the lease ran out and another run took the thread: then nothing is published.
        """
        if self._renewal is not None:
            self._renewal.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._renewal
        await self._write(answer)
        if not await self._store.publish(self._key, self._head, self._lease, until=None):
            raise ThreadLost

    @property
    def _head(self) -> str | None:
        return self._chain[-1].key if self._chain else None

    async def _write(self, messages: Sequence[Message]) -> None:
        start = len(self._chain)
        for position, message in enumerate(messages, start):
            self._chain.append(Link(f"{position:08d}#{secrets.token_hex(6)}", self._head, position, message))
        if messages:
            await self._store.write(self._key, self._chain[start:])

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(LEASE_SECONDS / 3)
            try:
                if not await self._store.publish(self._key, self._head, self._lease, time.time() + LEASE_SECONDS):
                    logger.error("the lease of thread %s was lost", self._key.thread_id)
                    return
            except Exception:
                logger.exception("the lease of thread %s could not be renewed", self._key.thread_id)


def _chain(stored: Stored) -> list[Link]:
    """From the head back to the first message. An item that is missing ends the walk, with the rest still usable."""
    chain: list[Link] = []
    key = stored.head
    while key is not None:
        link = stored.links.get(key)
        if link is None:
            logger.error("the thread's chain is broken at item %s", key)
            break
        chain.append(link)
        key = link.previous
    return chain[::-1]
