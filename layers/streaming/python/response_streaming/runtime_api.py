"""One connection to Lambda's Runtime API: the next invocation in, its response out.

Knows HTTP as far as this one server speaks it, and nothing of ASGI. An invocation at a time: whoever wants more in
parallel opens more connections.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from response_streaming import wire
from response_streaming.errors import ResponseRefused, RuntimeApiError

XRAY_CAUSE_LIMIT = 1024 * 1024
"""Bytes of JSON that X-Ray takes as the cause of an error."""


@dataclass(frozen=True, slots=True)
class Invocation:
    """What `GET /next` gave: the event as bytes, and the headers around it (names in lower case)."""

    request_id: str
    body: bytes
    headers: Mapping[str, str]

    @property
    def deadline_ms(self) -> int:
        """When Lambda kills the environment, in milliseconds since the epoch."""
        return int(self.headers["lambda-runtime-deadline-ms"])

    @property
    def invocation_id(self) -> str | None:
        """The nonce that newer Runtime APIs want back with the answer; absent on older ones."""
        return self.headers.get("lambda-runtime-invocation-id")


class RuntimeApi:
    """A keep-alive connection. `address` is `AWS_LAMBDA_RUNTIME_API`, as `host:port`."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def next(self) -> Invocation:
        """Waits for an invocation. Raises RuntimeApiError for any other answer: polling on would never end."""
        status, headers, body = await self._ask(wire.request("GET", "/invocation/next", self.address, {}))
        if status != 200:
            raise RuntimeApiError(f"GET /invocation/next answered {status}: {body[:200]!r}")
        return Invocation(headers["lambda-runtime-aws-request-id"], body, headers)

    async def respond(self, invocation: Invocation, body: bytes) -> int:
        """Posts a whole (buffered) response and returns the status of the answer."""
        return await self._post(f"/invocation/{invocation.request_id}/response", body, _echo(invocation))

    async def error(self, invocation: Invocation, error: Mapping[str, Any], xray_cause: str) -> int:
        """Reports an invocation that failed before its response began."""
        headers = {**_error_type(error), **_echo(invocation)}
        if len(xray_cause) < XRAY_CAUSE_LIMIT:
            headers["Lambda-Runtime-Function-XRay-Error-Cause"] = xray_cause.replace("\r", " ").replace("\n", " ")
        return await self._post(f"/invocation/{invocation.request_id}/error", json.dumps(error).encode(), headers)

    async def init_error(self, error: Mapping[str, Any], kind: str | None = None) -> int:
        """Reports that this environment could not be initialised. `kind`: the error type if not that of `error`."""
        return await self._post("/init/error", json.dumps(error).encode(), _error_type(error, kind))

    async def restore_next(self) -> None:
        """SnapStart: waits while the snapshot is taken, and returns in the environment that was restored from it."""
        status, _, body = await self._ask(wire.request("GET", "/restore/next", self.address, {}))
        # The connection was made in another life.
        self.close()
        if status != 200:
            raise RuntimeApiError(f"GET /restore/next answered {status}: {body[:200]!r}")

    async def restore_error(self, error: Mapping[str, Any], kind: str) -> int:
        """SnapStart: reports that this environment could not be restored."""
        return await self._post("/restore/error", json.dumps(error).encode(), _error_type(error, kind))

    async def stream(self, invocation: Invocation) -> StreamedResponse:
        """Begins a streamed response. Nothing is sent before its `start`."""
        reader, writer = await self._connection()
        return StreamedResponse(self, invocation, reader, writer)

    async def read_answer(self, reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
        """Reads one answer; raises ConnectionError when the connection ends before it is whole."""
        try:
            status, headers = wire.response_head(await reader.readuntil(b"\r\n\r\n"))
            if headers.get("transfer-encoding", "").lower() == "chunked":
                body = await _read_chunks(reader)
            else:
                body = await reader.readexactly(int(headers.get("content-length", 0)))
        except asyncio.IncompleteReadError as end:
            raise ConnectionResetError("the Runtime API closed the connection") from end
        if headers.get("connection", "").lower() == "close":
            self.close()
        return status, headers, body

    def close(self) -> None:
        """Drops the connection; the next request opens another."""
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._reader is None or self._writer is None or self._writer.is_closing():
            host, _, port = self.address.rpartition(":")
            self._reader, self._writer = await asyncio.open_connection(host, int(port), limit=64 * 1024)
            connection: socket.socket = self._writer.get_extra_info("socket")
            # A token is a few bytes: without this the kernel may hold it back to fill a packet.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._reader, self._writer

    async def _post(self, path: str, body: bytes, headers: Mapping[str, str]) -> int:
        json_type = {"Content-Type": "application/json", **headers}
        status, _, _ = await self._ask(wire.request("POST", path, self.address, json_type, body))
        return status

    async def _ask(self, request: bytes) -> tuple[int, dict[str, str], bytes]:
        reused = self._writer is not None
        try:
            reader, writer = await self._connection()
            writer.write(request)
            return await self.read_answer(reader)
        except ConnectionError:
            self.close()
            if not reused:
                raise
        # An idle keep-alive connection may have been closed; a fresh one tells whether the server is there.
        return await self._ask(request)


class StreamedResponse:
    """A response on its way out: `start`, any number of `write`, `finish`. Each raises ResponseRefused once Lambda
    has stopped taking it."""

    def __init__(
        self,
        api: RuntimeApi,
        invocation: Invocation,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._api = api
        self._invocation = invocation
        self._reader = reader
        self._writer = writer
        self._answer: asyncio.Task[int] | None = None
        self.started = False
        self.refused = asyncio.Event()
        """Set when Lambda answered, or the connection broke, before the response was finished."""

    async def start(self, status: int, headers: wire.Headers) -> None:
        """Sends the prelude at once: the caller sees status and headers before the first byte of the body."""
        head = wire.streaming_request(self._invocation.request_id, self._api.address, self._invocation.invocation_id)
        # Nothing has begun with headers that cannot be sent: that error is still one before the response.
        opening = head + wire.chunk(wire.prelude(status, headers))
        self.started = True
        self._writer.write(opening)
        self._answer = asyncio.create_task(self._read_answer())
        await self._drain()

    async def write(self, data: bytes) -> None:
        """Sends a piece of the body, and waits while Lambda takes it more slowly than it is made."""
        if self.refused.is_set():
            raise ResponseRefused("Lambda stopped taking the response")
        transport = self._writer.transport
        transport.write(wire.chunk(data))
        # Nearly always all of it has left at once, and there is nothing to wait for.
        if transport.get_write_buffer_size() or transport.is_closing():
            await self._drain()

    async def finish(self, error: Mapping[str, Any] | None = None) -> int:
        """Ends the body, with `error` (`errorType`, `errorMessage`, `stackTrace`) in its trailers if it failed.

        Returns the status of Lambda's answer: 202, or why the response was not taken (400, 410, 413); 0 when the
        connection broke.
        """
        assert self._answer is not None, "finish comes after start"
        if not self.refused.is_set():
            self._writer.write(wire.end_with_error(error) if error else wire.END)
        elif self._answer.done():
            # The body was never ended, so this connection cannot carry another request.
            self._api.close()
        return await self._answer

    async def _drain(self) -> None:
        try:
            await self._writer.drain()
        except ConnectionError as broken:
            self.refused.set()
            raise ResponseRefused(str(broken)) from broken

    async def _read_answer(self) -> int:
        try:
            status, _, _ = await self._api.read_answer(self._reader)
        except ConnectionError:
            self._api.close()
            status = 0
        self.refused.set()
        return status


def _error_type(error: Mapping[str, Any], kind: str | None = None) -> dict[str, str]:
    return {wire.ERROR_TYPE: (kind or str(error["errorType"])).encode("ascii", "replace").decode()}


def _echo(invocation: Invocation) -> dict[str, str]:
    return {"Lambda-Runtime-Invocation-Id": invocation.invocation_id} if invocation.invocation_id else {}


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    pieces = []
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        pieces.append(await reader.readexactly(size))
        await reader.readexactly(2)
    while await reader.readuntil(b"\r\n") != b"\r\n":  # trailers
        pass
    return b"".join(pieces)
