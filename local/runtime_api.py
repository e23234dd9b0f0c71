"""The Lambda Runtime API of one execution environment: hands out invocations, takes replies, refuses what AWS refuses.

Speaks HTTP only; processes, deadlines and pools are `environment` and `function`. Written on h11 because the
reply of a streaming runtime ends in trailers, which no HTTP server framework shows.
Protocol: https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html and, for streaming, runtimes-custom.html there.
"""

from __future__ import annotations

import asyncio
import json
import logging
from base64 import b64decode
from collections.abc import AsyncIterator, Iterable

import h11

from local.invocation import Headers, InitError, Invocation, Outcome, Reply

logger = logging.getLogger(__name__)

VERSION = "/2018-06-01"

# Go's HTTP reader, which RAPID is built on, gives up on a trailer block that does not fit its buffer.
TRAILER_BLOCK_LIMIT = 4096
# What RAPID still swallows of a body that it has refused, before it closes the connection.
REFUSED_BODY_LIMIT = 256 * 1024
# The X-Ray error cause may be 1 MiB and is a header.
HEADER_LIMIT = 2 * 1024 * 1024


class RuntimeAPI:
    """Server for one runtime process, which has one invocation at a time.

    `address` is "host:port" once started, as AWS_LAMBDA_RUNTIME_API wants it. `initialized` resolves at the
    first poll for an invocation, or raises InitError.
    """

    def __init__(self) -> None:
        self.address = ""
        self.initialized: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._invocation: Invocation | None = None
        self._reply = Reply()
        self._answered = True
        self._unusable = False
        self._polled = asyncio.Event()
        self._given = asyncio.Event()
        # An error posted while a response is open has to wait for its end (and is then refused).
        self._answering = asyncio.Lock()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"

    async def close(self) -> None:
        """Closes every connection, which ends a runtime that is still there."""
        if self._server:
            self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def polled(self) -> None:
        """Returns when the runtime waits for an invocation."""
        await self._polled.wait()

    def invoke(self, invocation: Invocation) -> Reply:
        """Gives the waiting runtime its next invocation. Call it only after `polled` returned."""
        if not self._polled.is_set():
            raise RuntimeError("the runtime is not waiting for an invocation")
        self._invocation, self._reply = invocation, Reply()
        self._answered = False
        self._polled.clear()
        self._given.set()
        return self._reply

    # --- HTTP -----------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        http = _Connection(reader, writer)
        try:
            while request := await http.request():
                await self._route(http, request)
                if not await http.next_request():
                    break
        except (h11.ProtocolError, ConnectionError):
            pass  # A runtime that goes away; its process is watched elsewhere.
        except asyncio.CancelledError:
            pass  # `close`. Re-raised, asyncio.streams would log it.
        finally:
            self._connections.discard(task)
            writer.close()

    async def _route(self, http: _Connection, request: h11.Request) -> None:
        method = request.method.decode()
        path = request.target.decode().removeprefix(f"{VERSION}/runtime/")
        match method, path.split("/"):
            case "GET", ["invocation", "next"]:
                await self._next(http)
            case "POST", ["invocation", request_id, "response"]:
                await self._response(http, request, request_id)
            case "POST", ["invocation", request_id, "error"]:
                await self._error(http, request, request_id)
            case "POST", ["init", "error"]:
                await self._init_error(http, request)
            case _:
                await self._refuse(http, 404, "NotFound", f"no {method} {request.target.decode()} here")

    async def _next(self, http: _Connection) -> None:
        if self._unusable:
            await self._refuse(http, 403, "InvalidStateTransition", "the environment is unusable since its last reply")
            return
        if self._answered:
            self._given.clear()
            self._polled.set()
        # else: asked again before an answer, which gets the same event again.
        if not self.initialized.done():
            self.initialized.set_result(None)
        await self._given.wait()
        assert self._invocation is not None
        await http.answer(200, self._invocation.event, self._invocation.headers())

    async def _response(self, http: _Connection, request: h11.Request, request_id: str) -> None:
        async with self._answering:
            if not await self._may_answer(http, request_id):
                return
            mode = _header(request, b"lambda-runtime-function-response-mode")
            if mode not in ("", "streaming"):
                self._unusable = True
                self._end(Outcome.failed("Runtime.InvalidResponseModeHeader", f"unknown response mode {mode!r}"))
                await self._refuse(http, 400, "InvalidFunctionResponseMode", f"unknown response mode {mode!r}")
                return
            self._reply.streaming = mode == "streaming"
            self._reply.content_type = _header(request, b"content-type")
            try:
                if self._reply.streaming:
                    async for data in http.body():
                        await self._reply.write(data)
                else:
                    await self._reply.write(await http.whole_body())
                self._end(_outcome_of_trailers(request, http.trailers))
            except _TruncatedError:
                message = "the reply was cut before its end"
                self._end(Outcome.failed("Runtime.TruncatedResponse", message))
                await http.refuse(400, "TruncatedHTTPRequest", message)
                return
            await http.accept()

    async def _error(self, http: _Connection, request: h11.Request, request_id: str) -> None:
        async with self._answering:
            if not await self._may_answer(http, request_id):
                return
            try:
                error = await http.whole_body()
            except _TruncatedError:
                await http.refuse(400, "TruncatedHTTPRequest", "the error was cut before its end")
                return
            self._end(Outcome(_error_type(request), error))
            await http.accept()

    async def _init_error(self, http: _Connection, request: h11.Request) -> None:
        error = await http.whole_body()
        if self.initialized.done():
            await self._refuse(http, 403, "InvalidStateTransition", "the environment is initialised already")
            return
        self.initialized.set_exception(InitError(_error_type(request), error))
        await http.accept()

    async def _may_answer(self, http: _Connection, request_id: str) -> bool:
        if self._invocation is None or request_id != self._invocation.request_id:
            await self._refuse(http, 400, "InvalidRequestID", f"{request_id} is not the current invocation")
        elif self._answered:
            await self._refuse(http, 403, "InvalidStateTransition", f"{request_id} has been answered already")
        else:
            return True
        return False

    async def _refuse(self, http: _Connection, status: int, error_type: str, message: str) -> None:
        logger.warning("Runtime API answered %d %s: %s", status, error_type, message)
        await http.refuse(status, error_type, message)

    def _end(self, outcome: Outcome) -> None:
        self._answered = True
        self._reply.finish(outcome)


def _header(request: h11.Request, name: bytes) -> str:
    return b", ".join(value for key, value in request.headers if key == name).decode("latin-1")


def _error_type(request: h11.Request) -> str:
    return _header(request, b"lambda-runtime-function-error-type") or "Runtime.UnknownReason"


def _outcome_of_trailers(request: h11.Request, trailers: Iterable[tuple[bytes, bytes]]) -> Outcome:
    """Reads the error that a streaming runtime appends. Trailers not announced in `Trailer` do not count."""
    declared = {name.strip().lower() for name in _header(request, b"trailer").split(",")}
    found = {key.decode(): value.decode("latin-1") for key, value in trailers if key.decode() in declared}
    error_type = found.get("lambda-runtime-function-error-type")
    if error_type is None:
        return Outcome()
    try:
        error = b64decode(found.get("lambda-runtime-function-error-body", ""), validate=True)
    except ValueError:
        error = b""
    return Outcome(error_type, error)


class _TruncatedError(Exception):
    """The request body ended before its end, or is not HTTP."""


class _Connection:
    """One HTTP connection of the runtime: h11's state machine and the sockets around it.

    asyncio sets TCP_NODELAY by itself.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=HEADER_LIMIT)
        self.trailers: Iterable[tuple[bytes, bytes]] = ()

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
        """Yields what each read brought, chunk framing removed; sets `trailers`. Raises _TruncatedError."""
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
            raise _TruncatedError from error

    def _take_trailers(self, end: h11.EndOfMessage) -> None:
        self.trailers = list(end.headers)
        if sum(len(name) + len(value) + 4 for name, value in self.trailers) + 2 >= TRAILER_BLOCK_LIMIT:
            raise _TruncatedError

    async def whole_body(self) -> bytes:
        return b"".join([data async for data in self.body()])

    async def accept(self) -> None:
        await self.answer(202, b'{"status":"OK"}\n', [(b"Content-Type", b"application/json")])

    async def refuse(self, status: int, error_type: str, message: str) -> None:
        body = json.dumps({"errorMessage": message, "errorType": error_type}).encode()
        await self.answer(status, body, [(b"Content-Type", b"application/json")])

    async def answer(self, status: int, body: bytes, headers: Headers) -> None:
        head = h11.Response(status_code=status, headers=[*headers, (b"Content-Length", str(len(body)).encode())])
        for event in (head, h11.Data(data=body), h11.EndOfMessage()):
            self._writer.write(self._h11.send(event) or b"")
        await self._writer.drain()

    async def next_request(self) -> bool:
        """Reads over the rest of a body that was refused. False: the connection cannot be used any more."""
        left = REFUSED_BODY_LIMIT
        if self._h11.their_state is h11.SEND_BODY:
            try:
                async for data in self.body():
                    left -= len(data)
                    if left < 0:
                        return False
            except _TruncatedError:
                return False
        if self._h11.states != {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}:
            return False
        self._h11.start_next_cycle()
        return True
