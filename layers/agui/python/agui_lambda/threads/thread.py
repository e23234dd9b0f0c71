"""What a thread is: a chain of messages, a head that is moved when they are safe, and a lease that one run holds.

Every message is an item of its own that is never changed and names the one before it. Writing messages makes nothing
visible; moving the head does, in one conditional update. So a reader never sees half a turn, a run that lost its lease
cannot publish, an edit is a new branch of the chain, and a killed run leaves the thread as it was. How items are
stored is in `dynamodb.py`; which messages a client's list means is in `merge.py`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from agui_lambda.errors import ThreadBusy, ThreadLost, ThreadUnavailable
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

    async def delete(self, key: ThreadKey, links: Sequence[Link]) -> None:
        """Deletes messages that no chain holds any more, or ever held."""

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
        self._background: list[asyncio.Task[None]] = []

    @classmethod
    async def take(cls, store: Store, key: ThreadKey, sent: Sequence[Message], history: History = "auto") -> Thread:
        """Loads the thread, merges what the client sent into it, stores that, and takes the lease.

        From here on the client's message is safe. Raises ThreadBusy when another run has the thread.
        """
        stored, chain = await _load(store, key)
        kept, new = merge([link.message for link in chain], sent, history)
        thread = cls(store, key, chain[:kept], lease=secrets.token_hex(8))
        await thread._write(new)
        if not await thread._take(stored.head):
            await thread._delete(thread._chain[kept:])
            raise ThreadBusy
        thread._background.append(asyncio.create_task(thread._renew()))
        if discarded := chain[kept:]:
            thread._background.append(asyncio.create_task(thread._delete(discarded)))
        return thread

    @property
    def messages(self) -> list[Message]:
        return [link.message for link in self._chain]

    async def give_back(self, answer: Sequence[Message]) -> None:
        """Stores and publishes the run's messages and ends the lease, in one step.

        Raises ThreadLost when the lease ran out and another run took the thread: then nothing is published.
        """
        renewal, *_ = self._background
        renewal.cancel()
        await asyncio.wait(self._background)
        await self._write(answer)
        if not await self._store.publish(self._key, self._head, self._lease, until=None):
            raise ThreadLost

    @property
    def _head(self) -> str | None:
        return self._chain[-1].key if self._chain else None

    async def _take(self, loaded_head: str | None) -> bool:
        """Takes the lease. A run that is cancelled meanwhile gives it back, as the request cannot be called back."""
        until = time.time() + LEASE_SECONDS
        taking = asyncio.ensure_future(self._store.take(self._key, loaded_head, self._head, self._lease, until))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            if await taking:
                await self._store.publish(self._key, self._head, self._lease, until=None)
            raise

    async def _write(self, messages: Sequence[Message]) -> None:
        start = len(self._chain)
        for position, message in enumerate(messages, start):
            self._chain.append(Link(f"{position:08d}#{secrets.token_hex(6)}", self._head, position, message))
        if messages:
            await self._store.write(self._key, self._chain[start:])

    async def _delete(self, links: Sequence[Link]) -> None:
        """What an edit discarded, or a refused run wrote, is never shown, but would be read with every turn."""
        try:
            await self._store.delete(self._key, links)
        except Exception:
            logger.exception("discarded messages of thread %.100r could not be deleted", self._key.thread_id)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(LEASE_SECONDS / 3)
            try:
                if not await self._store.publish(self._key, self._head, self._lease, time.time() + LEASE_SECONDS):
                    logger.error("the lease of thread %.100r was lost", self._key.thread_id)
                    return
            except Exception:
                logger.exception("the lease of thread %.100r could not be renewed", self._key.thread_id)


async def _load(store: Store, key: ThreadKey) -> tuple[Stored, list[Link]]:
    """The thread and its chain, oldest first. Raises ThreadBusy for a living lease.

    A thread of several pages may be changed while they are read, and then lack an item: it is read once more. A chain
    that is still broken must not be built upon, as a new head would cut off for good what is behind the gap.
    """
    for _ in range(2):
        stored = await store.load(key)
        if stored.leased_until > time.time():
            raise ThreadBusy
        chain = _chain(stored)
        if chain is not None:
            return stored, chain
    raise ThreadUnavailable(f"the chain of thread {key.thread_id[:100]!r} is broken")


def _chain(stored: Stored) -> list[Link] | None:
    """From the first message to the head; None when an item between them is missing."""
    chain: list[Link] = []
    key = stored.head
    while key is not None:
        link = stored.links.get(key)
        if link is None:
            return None
        chain.append(link)
        key = link.previous
    return chain[::-1]
