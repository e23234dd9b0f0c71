"""A Runtime API of a few lines on a raw socket: gives invocations to a runtime and keeps every byte that it sends.

Agrees with everything it is told; how AWS judges it is asked of AWS's own programs in the tests beside this.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from local.environment import Configuration
from local.stack import LAYERS
from tests.ground_truth.events import event

Pairs = list[tuple[str, str]]


@dataclass(frozen=True)
class Request:
    """One request of a runtime: `raw` as it was on the wire, and taken apart. `chunks` are empty without chunking."""

    raw: bytes
    line: str
    headers: Pairs
    body: bytes
    chunks: list[bytes] = field(default_factory=list)
    trailers: Pairs = field(default_factory=list)

    def header(self, name: str) -> list[str]:
        """The values of a header, those in a list (RFC 9110, 5.6.1) one by one."""
        values = [value for key, value in self.headers if key.lower() == name.lower()]
        return [element.strip() for value in values for element in value.split(",")]


@dataclass(frozen=True)
class Run:
    """What a runtime sent, printed and wrote to its telemetry descriptor while it had the invocations.

    `requests` are those with something to say, `asked` the first lines of all.
    """

    requests: list[Request]
    asked: list[str]
    output: str
    telemetry: bytes
    exit_code: int

    def answer(self, request_id: str) -> Request:
        """The request that answered this invocation."""
        return next(request for request in self.requests if f"/invocation/{request_id}/" in request.line)


@dataclass(frozen=True)
class Given:
    """An invocation to be given out: a path of the program, and headers of `/next` on top of the usual ones."""

    request_id: str
    path: str
    headers: Pairs = field(default_factory=list)

    def response(self) -> bytes:
        body = event(self.path)
        headers = [
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
            ("Lambda-Runtime-Aws-Request-Id", self.request_id),
            ("Lambda-Runtime-Deadline-Ms", str(int(time.time() * 1000) + 30_000)),
            ("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:us-east-1:012345678912:function:agent"),
            *self.headers,
        ]
        return _head("200 OK", headers) + body


async def run(
    command: Sequence[str | Path],
    handler: str,
    task_root: Path,
    invocations: Iterable[Given] = (),
    env: dict[str, str] | None = None,
    telemetry: bool = False,
) -> Run:
    """Runs a runtime until it has answered these invocations and asks for more, or ends by itself."""
    to_give, requests, asked = list(invocations), [], []
    all_answered = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async for request in _requests(reader):
                asked.append(request.line)
                if "/restore/next" in request.line:
                    writer.write(_head("200 OK", [("Content-Length", "0")]))
                elif not request.line.startswith("GET"):
                    requests.append(request)
                    writer.write(_head("202 Accepted", [("Content-Length", "0")]))
                elif to_give:
                    writer.write(to_give.pop(0).response())
                else:
                    answered.append(writer)
                    if len(answered) == pollers:
                        all_answered.set()
                    await all_given_up.wait()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    answered: list[asyncio.StreamWriter] = []
    all_given_up = asyncio.Event()
    pollers = int((env or {}).get("AWS_LAMBDA_MAX_CONCURRENCY", "1"))
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    configuration = Configuration(
        handler=handler, task_root=task_root, command=tuple(map(str, command)), layers=LAYERS, env=env or {}
    )
    async with _pipe() as (frames, descriptor):
        variables = configuration.variables(f"{host}:{port}")
        if telemetry:
            variables["_LAMBDA_TELEMETRY_LOG_FD"] = str(descriptor)
        process = await asyncio.create_subprocess_exec(
            *configuration.command,
            cwd=task_root,
            env=variables,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=[descriptor],
            start_new_session=True,
        )
        os.close(descriptor)
        output = asyncio.create_task(process.communicate())
        waiting = asyncio.create_task(all_answered.wait())
        try:
            await asyncio.wait({output, waiting}, timeout=20, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            all_given_up.set()
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
            printed, _ = await output
            server.close()
        written = await frames.read()
    return Run(requests, asked, printed.decode(), written, process.returncode or 0)


@asynccontextmanager
async def _pipe() -> AsyncIterator[tuple[asyncio.StreamReader, int]]:
    reading, writing = os.pipe()
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reading, "rb", 0)
    )
    try:
        yield reader, writing
    finally:
        transport.close()


def _head(status: str, headers: Pairs) -> bytes:
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


async def _requests(reader: asyncio.StreamReader) -> AsyncIterator[Request]:
    while True:
        head = await reader.readuntil(b"\r\n\r\n")
        line, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
        request = Request(head, line, _pairs(lines), b"")
        if request.header("transfer-encoding") == ["chunked"]:
            yield await _chunked(reader, request)
        else:
            body = await reader.readexactly(int(*request.header("content-length") or ["0"]))
            yield Request(head + body, line, request.headers, body)


async def _chunked(reader: asyncio.StreamReader, head: Request) -> Request:
    raw, chunks = head.raw, []
    while True:
        size = await reader.readuntil(b"\r\n")
        raw += size
        if not int(size, 16):
            break
        chunk = await reader.readexactly(int(size, 16) + 2)
        raw += chunk
        chunks.append(chunk[:-2])
    trailers = []
    while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
        raw += line
        trailers.append(line.decode("latin-1").removesuffix("\r\n"))
    return Request(raw + line, head.line, head.headers, b"".join(chunks), chunks, _pairs(trailers))


def _pairs(lines: list[str]) -> Pairs:
    return [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
