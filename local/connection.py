"""One HTTP connection of a runtime: h11's state machine and the sockets around it.

Written on h11 because the reply of a streaming runtime ends in trailers, which no HTTP server framework shows. Refuses
as Go's server does, which AWS's is built on; what is refused and why is in `runtime_api`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable

import h11

from local.invocation import REFUSED_BODY_LIMIT, Headers

# Go's HTTP reader gives up on a trailer block that does not fit its buffer.
TRAILER_BLOCK_LIMIT = 4096
# The X-Ray error cause may be 1 MiB and is a header.
HEADER_LIMIT = 2 * 1024 * 1024
# Seconds that a refused client has to read its answer: closed at once, a socket with unread data takes it along.
LINGER = 0.5


class TruncatedError(Exception):
    """The request body ended before its end, or is not HTTP."""


class Connection:
    """asyncio sets TCP_NODELAY by itself."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=HEADER_LIMIT)
        self.trailers: Iterable[tuple[bytes, bytes]] = ()

    @property
    def gone(self) -> bool:
        """Whether the runtime has closed it."""
        return self._reader.at_eof()

    async def request(self) -> h11.Request | None:
        """The next request's head; None when the runtime has closed the connection."""
        while True:
            event = self._h11.next_event()
            if isinstance(event, h11.Request):
                self.trailers = ()
                return event
            if event is not h11.NEED_DATA:
                return None
            self._h11.receive_data(await self._reader.read(65536))

    async def body(self) -> AsyncIterator[bytes]:
        """Yields what each read brought, chunk framing removed; sets `trailers`. Raises TruncatedError.

        May be left and taken up again: what was read is not lost.
        """
        if self._h11.they_are_waiting_for_100_continue:
            self._writer.write(self._h11.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
        try:
            while True:
                parts: list[bytes] = []
                while (event := self._h11.next_event()) is not h11.NEED_DATA:
                    if isinstance(event, h11.Data):
                        parts.append(bytes(event.data))
                        continue
                    if parts:
                        yield b"".join(parts)
                    if isinstance(event, h11.EndOfMessage):
                        self._take_trailers(event)
                    return
                if parts:
                    yield b"".join(parts)
                self._h11.receive_data(await self._reader.read(65536))
        except (h11.RemoteProtocolError, ConnectionError) as error:
            raise TruncatedError from error

    def _take_trailers(self, end: h11.EndOfMessage) -> None:
        self.trailers = list(end.headers)
        if sum(len(name) + len(value) + 4 for name, value in self.trailers) + 2 >= TRAILER_BLOCK_LIMIT:
            raise TruncatedError

    async def whole_body(self) -> bytes:
        return b"".join([data async for data in self.body()])

    async def accept(self) -> None:
        await self.answer(202, b'{"status":"OK"}\n', [(b"Content-Type", b"application/json")])

    async def refuse(
        self, status: int, error_type: str, message: str, *, swallow: int = REFUSED_BODY_LIMIT, close: bool = False
    ) -> None:
        """Answers once the body has ended or `swallow` more bytes of it were read; then the connection is of no more
        use (nor is it with `close`)."""
        ended = await self._swallow(swallow)
        headers: Headers = [(b"Content-Type", b"application/json")]
        if close or not ended:
            headers.append((b"Connection", b"close"))
        await self.answer(status, json.dumps({"errorMessage": message, "errorType": error_type}).encode(), headers)

    async def answer(self, status: int, body: bytes, headers: Headers) -> None:
        head = h11.Response(status_code=status, headers=[*headers, (b"Content-Length", str(len(body)).encode())])
        for event in (head, h11.Data(data=body), h11.EndOfMessage()):
            self._writer.write(self._h11.send(event) or b"")
        await self._writer.drain()

    async def next_request(self) -> bool:
        """Makes ready for another request. False: the connection cannot be used any more."""
        if self._h11.our_state is h11.DONE and await self._swallow(REFUSED_BODY_LIMIT):
            self._h11.start_next_cycle()
            return True
        await self._linger()
        return False

    async def _swallow(self, limit: int) -> bool:
        """Reads over the rest of a body, at most `limit` bytes. Whether it ended."""
        if limit and self._h11.their_state is h11.SEND_BODY:
            try:
                async for data in self.body():
                    limit -= len(data)
                    if limit < 0:
                        return False
            except TruncatedError:
                return False
        return self._h11.their_state is h11.DONE

    async def _linger(self) -> None:
        try:
            self._writer.write_eof()
            async with asyncio.timeout(LINGER):
                while await self._reader.read(65536):
                    pass
        except (TimeoutError, OSError):
            pass  # It is closed now in any case.
