"""The Lambda Runtime API of one execution environment: hands out invocations, takes replies, refuses what AWS refuses.

Holds the rules; HTTP is in `connection`, processes, deadlines and pools are `environment` and `function`.
Protocol: https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html and, for streaming, runtimes-custom.html there;
SnapStart: snapstart-runtime-hooks.html there. Refusals are those of AWS's runtime interface emulator.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64decode
from collections import deque
from collections.abc import Iterable

import h11

from local.connection import Connection, TruncatedError
from local.invocation import REFUSALS, REFUSED_BODY_LIMIT, InitError, Invocation, Outcome, Reply

logger = logging.getLogger(__name__)

VERSION = "/2018-06-01"

# https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html, in bytes; the first is what AWS counts.
BUFFERED_LIMIT = 6_291_556
STREAMED_LIMIT = 200 * 1024 * 1024


class _Exchange:
    """An invocation in the hands of the runtime, and what it has answered to it."""

    def __init__(self, invocation: Invocation) -> None:
        self.invocation = invocation
        self.reply = Reply()
        self.answering = False
        self.answered = asyncio.Event()


class RuntimeAPI:
    """Server for one runtime process.

    `address` is "host:port" once started, as AWS_LAMBDA_RUNTIME_API wants it. `initialized` resolves at the
    first poll for an invocation, or raises InitError. With `snap_start`, `snapshot` resolves when the runtime is ready
    for it, and waits for `restore`. `concurrent` are the rules of Managed Instances: as many invocations at once as
    the runtime asks for. `streamed_limit` is the size of a streamed reply in bytes.
    """

    def __init__(
        self, *, snap_start: bool = False, concurrent: bool = False, streamed_limit: int = STREAMED_LIMIT
    ) -> None:
        loop = asyncio.get_running_loop()
        self.address = ""
        self.initialized: asyncio.Future[None] = loop.create_future()
        self.snapshot: asyncio.Future[None] = loop.create_future()
        self._snap_start = snap_start
        self._concurrent = concurrent
        self._streamed_limit = streamed_limit
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        # By request id. One that is alone stays until the next, so that a second answer is known as such.
        self._exchanges: dict[str, _Exchange] = {}
        self._waiting: deque[tuple[Connection, asyncio.Future[_Exchange]]] = deque()
        self._not_yet_taken: deque[_Exchange] = deque()
        self._polled = asyncio.Event()
        self._restored = asyncio.Event()
        self._unusable = False

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
        """Gives the runtime an invocation. Unless it takes several at once, call it only after `polled` returned."""
        exchange = _Exchange(invocation)
        if self._concurrent:
            self._not_yet_taken.append(exchange)
            self._exchanges[invocation.request_id] = exchange
            self._hand_out()
        elif not self._polled.is_set():
            raise RuntimeError("the runtime is not waiting for an invocation")
        else:
            self._exchanges = {invocation.request_id: exchange}
            self._polled.clear()
            while self._waiting:
                self._waiting.popleft()[1].set_result(exchange)
        return exchange.reply

    def restore(self) -> None:
        """SnapStart: lets the runtime go on, as an environment that is restored from the snapshot."""
        self._restored.set()

    # --- HTTP -----------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        http = Connection(reader, writer)
        try:
            while request := await http.request():
                await self._route(http, request)
                if not await http.next_request():
                    break
        except (h11.ProtocolError, TruncatedError, ConnectionError):
            pass  # A runtime that goes away; its process is watched elsewhere.
        except asyncio.CancelledError:
            pass  # `close`. Re-raised, asyncio.streams would log it.
        finally:
            self._connections.discard(task)
            writer.close()

    async def _route(self, http: Connection, request: h11.Request) -> None:
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
                await self._init_error(http, request, allowed=not self._restored.is_set())
            case "GET", ["restore", "next"] if self._snap_start:
                await self._restore_next(http)
            case "POST", ["restore", "error"] if self._snap_start:
                await self._init_error(http, request, allowed=self._restored.is_set())
            case _:
                await self._refuse(http, 404, "NotFound", f"no {method} {request.target.decode()} here")

    async def _next(self, http: Connection) -> None:
        if self._unusable:
            await self._refuse(http, 403, "InvalidStateTransition", "the environment is unusable since its last reply")
            return
        exchange = self._unanswered()
        if exchange is None:
            taken = asyncio.get_running_loop().create_future()
            self._waiting.append((http, taken))
            self._polled.set()
            self._hand_out()
            if not self.initialized.done():
                self.initialized.set_result(None)
            exchange = await taken
        await http.answer(200, exchange.invocation.event, exchange.invocation.headers())

    def _unanswered(self) -> _Exchange | None:
        """What a runtime that takes one at a time is given again if it asks before it has answered."""
        if self._concurrent:
            return None
        return next((one for one in self._exchanges.values() if not one.answered.is_set()), None)

    def _hand_out(self) -> None:
        """Brings waiting invocations and waiting connections together."""
        while self._not_yet_taken and self._waiting:
            if self._waiting[0][0].gone:
                self._waiting.popleft()
            elif self._not_yet_taken[0].reply.outcome:
                self._not_yet_taken.popleft()  # Too late.
            else:
                self._waiting.popleft()[1].set_result(self._not_yet_taken.popleft())

    async def _response(self, http: Connection, request: h11.Request, request_id: str) -> None:
        exchange = await self._claim(http, request, request_id)
        if exchange is None:
            return
        reply = exchange.reply
        mode = _header(request, b"lambda-runtime-function-response-mode")
        if mode not in ("", "streaming"):
            self._unusable = not self._concurrent
            reply.finish(Outcome.failed("Runtime.InvalidResponseModeHeader", f"unknown response mode {mode!r}"))
            self._end(exchange)
            await self._refuse(http, 400, "InvalidFunctionResponseMode", f"unknown response mode {mode!r}")
            return
        reply.streaming = mode == "streaming"
        reply.content_type = _header(request, b"content-type")
        try:
            await self._read(http, reply)
            if reply.refusal is None:
                reply.finish(_outcome_of_trailers(request, http.trailers))
        except TruncatedError:
            message = "the reply was cut before its end"
            reply.finish(Outcome.failed("Runtime.TruncatedResponse", message))
            self._end(exchange)
            await http.refuse(400, "TruncatedHTTPRequest", message, close=True)
            return
        if reply.refusal:
            await self._refuse_reply(http, exchange)
            return
        self._end(exchange)
        await http.accept()

    async def _read(self, http: Connection, reply: Reply) -> None:
        """Reads the body into the reply, until its end or until it is refused. Raises TruncatedError."""
        reading = asyncio.create_task(self._read_body(http, reply))
        refused = asyncio.create_task(reply.refused.wait())
        try:
            await asyncio.wait({reading, refused}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            reading.cancel()
            refused.cancel()
            # Ended for sure before somebody else reads on.
            await asyncio.wait({reading, refused})
        if reply.refusal is None:
            reading.result()
        elif not reading.cancelled():
            reading.exception()  # Retrieved, or asyncio would complain about it.

    async def _read_body(self, http: Connection, reply: Reply) -> None:
        size = 0
        parts: list[bytes] = []
        limit = self._streamed_limit if reply.streaming else BUFFERED_LIMIT
        async for data in http.body():
            size += len(data)
            over = size - limit
            if reply.streaming:
                await reply.write(data[:-over] if over > 0 else data)
            else:
                parts.append(data)
            if over > 0:
                reply.refuse(413, swallow=REFUSED_BODY_LIMIT - over)
                return
        if parts:
            await reply.write(b"".join(parts))

    async def _error(self, http: Connection, request: h11.Request, request_id: str) -> None:
        open_ = self._exchanges.get(request_id)
        if self._concurrent and open_ and open_.answering and not open_.reply.outcome:
            # Managed Instances alone: the error takes the place of the rest, and the open request ends without a word.
            error = await http.whole_body()
            open_.reply.refuse(0, swallow=0, outcome=Outcome(_error_type(request), error, truncated=True))
            await http.accept()
            return
        exchange = await self._claim(http, request, request_id)
        if exchange is None:
            return
        try:
            error = await http.whole_body()
        except TruncatedError:
            exchange.answering = False
            await http.refuse(400, "TruncatedHTTPRequest", "the error was cut before its end", close=True)
            return
        exchange.reply.finish(Outcome(_error_type(request), error))
        self._end(exchange)
        await http.accept()

    async def _claim(self, http: Connection, request: h11.Request, request_id: str) -> _Exchange | None:
        """The invocation that is answered by this request; None if it must not be, which the runtime then knows."""
        exchange = self._exchanges.get(request_id)
        if exchange and exchange.answering and not self._concurrent:
            # An answer while another is open has to wait for its end (and is then refused).
            await exchange.answered.wait()
        if exchange is None or (exchange.answering and self._concurrent):
            await self._refuse(http, 400, "InvalidRequestID", f"{request_id} is not a current invocation")
        elif exchange.answered.is_set():
            await self._refuse(http, 403, "InvalidStateTransition", f"{request_id} has been answered already")
        elif _is_wrong(_header(request, b"lambda-runtime-invocation-id"), exchange.invocation.invocation_id):
            await self._refuse(http, 410, *REFUSALS[410])
        elif refusal := exchange.reply.refusal:
            self._end(exchange)
            await self._refuse(http, refusal.status, *REFUSALS[refusal.status])
        else:
            exchange.answering = True
            return exchange
        return None

    async def _refuse_reply(self, http: Connection, exchange: _Exchange) -> None:
        refusal = exchange.reply.refusal
        assert refusal is not None
        self._end(exchange)
        if refusal.status == 0:
            raise ConnectionAbortedError
        logger.warning("Runtime API takes no more of the reply: %d %s", refusal.status, REFUSALS[refusal.status][0])
        await http.refuse(
            refusal.status, *REFUSALS[refusal.status], swallow=refusal.swallow, close=refusal.status == 400
        )

    async def _refuse(self, http: Connection, status: int, error_type: str, message: str) -> None:
        logger.warning("Runtime API answered %d %s: %s", status, error_type, message)
        await http.refuse(status, error_type, message)

    def _end(self, exchange: _Exchange) -> None:
        exchange.answered.set()
        if self._concurrent:
            self._exchanges.pop(exchange.invocation.request_id, None)

    # --- INIT and SnapStart ---------------------------------------------------------------------------------

    async def _init_error(self, http: Connection, request: h11.Request, *, allowed: bool) -> None:
        error = await http.whole_body()
        if self.initialized.done() or not allowed:
            await self._refuse(http, 403, "InvalidStateTransition", "it is not the time for such an error")
            return
        self.initialized.set_exception(InitError(_error_type(request), error))
        await http.accept()

    async def _restore_next(self, http: Connection) -> None:
        if self.snapshot.done() or self.initialized.done():
            await self._refuse(http, 403, "InvalidStateTransition", "there is nothing to restore")
            return
        self.snapshot.set_result(None)
        await self._restored.wait()
        await http.answer(200, b"", [])


def _header(request: h11.Request, name: bytes) -> str:
    return b", ".join(value for key, value in request.headers if key == name).decode("latin-1")


def _error_type(request: h11.Request) -> str:
    return _header(request, b"lambda-runtime-function-error-type") or "Runtime.UnknownReason"


def _is_wrong(echo: str, invocation_id: str | None) -> bool:
    """An echo of another invocation. None at all is taken: runtimes older than the header do not echo it."""
    return bool(echo) and invocation_id is not None and echo != invocation_id


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
