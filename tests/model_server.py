"""A scripted OpenAI-compatible server on loopback: a real socket that sends the very bytes a test asks for.

Knows HTTP/1.1 framing and the shape of a Chat Completions chunk. Knows nothing of agents, threads or Lambda.

    async with ModelServer() as model:
        more = asyncio.Event()
        reply = model.reply(say("Hel", "lo"), wait_for(more), say("!"), fin())    # answers the next request
        ...                                              # point the code under test at model.url
        await reply.asked.wait()                         # the request is here; reply.request.body is its JSON
        more.set()                                       # the test decides when the rest is sent
        assert model.saw[0]["messages"][-1]["content"] == "hi"
        assert model.connections == 1

Steps of a reply, played in order. `say` `call` `fin` `chunk` `raw` build the event stream, each piece in a
write of its own. `wait_for(event)` and `wait(seconds)` hold it, `cut` closes the socket, `hang` sends nothing
more until the client leaves. `http(status, body, headers)` is a whole answer instead of a stream; `wire` puts
bytes on the socket without any framing. A reply whose steps run out ends its body properly, so leaving `fin`
out gives a stream without a finish.
"""

import asyncio
import json
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self


@dataclass
class Request:
    """One request as it arrived. `headers` has lower-case names; `body` is the parsed JSON, or None."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class Reply:
    """The script for one request, and what became of it.

    `asked` is set when the request has arrived (then `request` is there), `gone` when the client left before
    the script was through, `over` when nothing more will be sent. `sent` lists the body's pieces as
    (time.monotonic() just before the write, bytes); all processes of a Linux machine share that clock.
    """

    steps: tuple["Step", ...]
    request: Request | None = None
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    sent: list[tuple[float, bytes]] = field(default_factory=list)


class Wire:
    """The answering side of one exchange: writes the head when the first piece of the stream is due."""

    def __init__(self, writer: asyncio.StreamWriter, reply: Reply) -> None:
        self.writer = writer
        self.reply = reply
        self.streaming = False
        self.closing = False

    async def put(self, data: bytes) -> None:
        """Bytes on the socket as they are."""
        self.writer.write(data)
        await self.writer.drain()

    async def head(self) -> None:
        if not self.streaming:
            self.streaming = True
            await self.put(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")

    async def body(self, data: bytes) -> None:
        """One piece of the event stream, in an HTTP chunk of its own."""
        await self.head()
        self.reply.sent.append((time.monotonic(), data))
        await self.put(b"%x\r\n%b\r\n" % (len(data), data))

    async def end(self) -> None:
        if self.streaming and not self.closing:
            await self.put(b"0\r\n\r\n")


Step = Callable[[Wire], Awaitable[None]]


def raw(*pieces: bytes) -> Step:
    """Bytes of the event stream, each piece in a write of its own: comments, odd framing, half characters."""

    async def step(to: Wire) -> None:
        for piece in pieces:
            await to.body(piece)

    return step


def frame(data: Mapping[str, Any]) -> bytes:
    """An SSE frame with this JSON, as OpenAI writes it."""
    return b"data: " + json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def chunk(delta: Mapping[str, Any] | None = None, finish_reason: str | None = None, **more: Any) -> Step:
    """One Chat Completions chunk; `more` sets top-level keys (`usage=…`, `choices=[]`, `error=…`)."""
    data: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": "scripted",
        "choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish_reason}],
    }
    return raw(frame(data | more))


def _in_order(*steps: Step) -> Step:
    async def step(to: Wire) -> None:
        for one in steps:
            await one(to)

    return step


def say(*texts: str) -> Step:
    """Assistant text, one chunk per argument."""
    return _in_order(*(chunk({"content": text}) for text in texts))


def call(index: int, id: str, name: str, fragments: list[str]) -> Step:
    """A tool call in OpenAI's reference shape: id and name first, then the argument fragments."""
    opening = {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}
    return _in_order(
        chunk({"tool_calls": [opening]}),
        *(chunk({"tool_calls": [{"index": index, "function": {"arguments": fragment}}]}) for fragment in fragments),
    )


def fin(reason: str = "stop", usage: Mapping[str, Any] | None = None, done: bool = True) -> Step:
    """The finish chunk, then a usage chunk if `usage` is given, then `[DONE]` unless `done` is False."""
    steps = [chunk(finish_reason=reason)]
    if usage is not None:
        steps.append(chunk(choices=[], usage=usage))
    if done:
        steps.append(raw(b"data: [DONE]\n\n"))
    return _in_order(*steps)


def wait_for(event: asyncio.Event, reached: asyncio.Event | None = None) -> Step:
    """Send nothing more until the test sets `event`; `reached` is set when all before it is written."""

    async def step(to: Wire) -> None:
        if reached is not None:
            reached.set()
        await event.wait()

    return step


def wait(seconds: float) -> Step:
    """Send nothing for this long: for pacing in measurements; a test that must be right uses `wait_for`."""

    async def step(to: Wire) -> None:
        await asyncio.sleep(seconds)

    return step


async def cut(to: Wire) -> None:
    """Close the socket here: in the middle of the body, or without any answer when it is the first step."""
    to.closing = True


async def hang(to: Wire) -> None:
    """Send nothing more and keep the socket open, until the client leaves or the server is closed."""
    await asyncio.Event().wait()


def http(status: int, body: Any = b"", headers: Mapping[str, str] | None = None) -> Step:
    """A whole answer. `body`: bytes or str as they are (str as text/html), anything else as JSON."""
    if isinstance(body, bytes | str):
        content, kind = (body.encode() if isinstance(body, str) else body), "text/html; charset=utf-8"
    else:
        content, kind = json.dumps(body).encode(), "application/json"
    fields = {"content-type": kind, "content-length": str(len(content))} | dict(headers or {})
    head = f"HTTP/1.1 {status} Scripted\r\n" + "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return wire(head.encode("latin-1") + b"\r\n" + content)


def wire(data: bytes) -> Step:
    """Bytes on the socket as they are, head included: for answers that are no HTTP, or only almost."""

    async def step(to: Wire) -> None:
        await to.put(data)

    return step


class ModelServer:
    """Answers each request with the next queued `reply`, else with `otherwise`, which is a 400 unless set.

    `url` is the base address for an OpenAI client (…/v1). `requests` are all requests in order of arrival,
    `saw` their JSON bodies, `connections` the number of TCP connections accepted so far.
    """

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.connections = 0
        self._queue: deque[Reply] = deque()
        self._otherwise: tuple[Step, ...] = (http(400, {"error": {"message": "no reply was scripted"}}),)
        self._exchanges: set[asyncio.Task[None]] = set()

    @property
    def saw(self) -> list[Any]:
        return [request.body for request in self.requests]

    def reply(self, *steps: Step) -> Reply:
        """Queue the answer to one request."""
        reply = Reply(steps)
        self._queue.append(reply)
        return reply

    def otherwise(self, *steps: Step) -> None:
        """The answer to every request for which no `reply` is queued."""
        self._otherwise = steps

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.url = f"http://{host}:{port}/v1"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._exchanges:
            task.cancel()
        await asyncio.gather(*self._exchanges, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = asyncio.create_task(self._connection(reader, writer))
        self._exchanges.add(task)
        task.add_done_callback(self._exchanges.discard)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        rest = b""
        try:
            while (request := await _read_request(rest, reader)) is not None:
                self.requests.append(request)
                reply = self._queue.popleft() if self._queue else Reply(self._otherwise)
                reply.request = request
                reply.asked.set()
                left, rest = await _play(reply, reader, writer)
                if left:
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client closed a connection it no longer needs
        finally:
            writer.close()


async def _play(reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[bool, bytes]:
    """Play the script until its end or until the client leaves.

    Returns whether the connection is over, and the bytes of the next request that were read already.
    """
    to = Wire(writer, reply)

    async def script() -> None:
        for step in reply.steps:
            if to.closing:
                break
            await step(to)
        await to.end()

    # A client sends nothing while it waits for its answer, so whatever can be read meanwhile is its leaving,
    # or, when the answer is complete but our task has not noticed, the first byte of its next request.
    watch, play = asyncio.create_task(reader.read(1)), asyncio.create_task(script())
    try:
        await asyncio.wait({watch, play}, return_when=asyncio.FIRST_COMPLETED)
        rest = watch.result() if watch.done() and watch.exception() is None else None
        if not play.done():
            if rest:
                await asyncio.wait({play})
            else:
                reply.gone.set()
                return True, b""
        try:
            play.result()
        except ConnectionError:
            reply.gone.set()
            return True, b""
        return to.closing or rest == b"", rest or b""
    finally:
        watch.cancel()
        play.cancel()
        await asyncio.gather(watch, play, return_exceptions=True)
        reply.over.set()


async def _read_request(start: bytes, reader: asyncio.StreamReader) -> Request | None:
    """The next request of this connection, None when there is none; `start` are bytes read before."""
    try:
        head = start + await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").strip().split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding", "").lower() == "chunked":
        content = b""
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            content += await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readuntil(b"\r\n")
    else:
        content = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, path, headers, json.loads(content) if content else None)
