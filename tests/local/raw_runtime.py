"""A runtime made of raw sockets: every byte that the emulator gets and gives is spelled out by the test.

Used in the test's own process, against `local.runtime_api`, and as a program (`python raw_runtime.py`), which
answers each event as its body asks: see `SCRIPT` at the end.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

NEXT = "/2018-06-01/runtime/invocation/next"


class Http:
    """One HTTP/1.1 connection to the Runtime API."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, address: str) -> Http:
        host, port = address.split(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    def send(self, *lines: str, body: bytes = b"") -> None:
        self.writer.write("\r\n".join([*lines, "Host: api", "", ""]).encode() + body)

    def chunk(self, data: bytes) -> None:
        self.writer.write(b"%x\r\n%s\r\n" % (len(data), data))

    def end(self, *trailers: str) -> None:
        self.writer.write("\r\n".join(["0", *trailers, "", ""]).encode())

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in head[1:] if line)}
        body = await self.reader.readexactly(int(headers["content-length"]))
        return int(head[0].split()[1]), headers, body

    async def next(self) -> tuple[str, bytes]:
        """Asks for an invocation; returns its id and event."""
        self.send(f"GET {NEXT} HTTP/1.1")
        status, headers, event = await self.answer()
        assert status == 200, event
        return headers["lambda-runtime-aws-request-id"], event

    def respond(self, request_id: str, *headers: str, path: str = "response", body: bytes = b"{}") -> None:
        """A buffered answer."""
        post = f"POST /2018-06-01/runtime/invocation/{request_id}/{path} HTTP/1.1"
        self.send(post, f"Content-Length: {len(body)}", *headers, body=body)

    def stream(
        self, request_id: str, *headers: str, content_type: str = "application/vnd.awslambda.http-integration-response"
    ) -> None:
        """The head of a streaming answer, as AWS's Node.js client sends it."""
        self.send(
            f"POST /2018-06-01/runtime/invocation/{request_id}/response HTTP/1.1",
            "Lambda-Runtime-Function-Response-Mode: streaming",
            "Trailer: Lambda-Runtime-Function-Error-Type",
            "Trailer: Lambda-Runtime-Function-Error-Body",
            f"Content-Type: {content_type}",
            "Transfer-Encoding: chunked",
            *headers,
        )


# --- as a program -------------------------------------------------------------------------------------------


async def run() -> None:
    handler = os.environ["_HANDLER"]
    if handler == "init.exit":
        sys.exit(7)
    if handler == "init.error":
        await fail(await connect(), "init/error", "Runtime.HandlerNotFound", "no handler there")
    if handler == "snap.before":
        await fail(await connect(), "init/error", "Runtime.BeforeSnapshotError", "no snapshot")
    if handler.startswith("snap."):
        http = await connect()
        http.send("GET /2018-06-01/runtime/restore/next HTTP/1.1")
        await http.answer()
        if handler == "snap.after":
            await fail(http, "restore/error", "Runtime.AfterRestoreError", "no restore")
    await asyncio.gather(*(poll() for _ in range(int(os.environ.get("AWS_LAMBDA_MAX_CONCURRENCY", 1)))))


async def connect() -> Http:
    return await Http.connect(os.environ["AWS_LAMBDA_RUNTIME_API"])


async def fail(http: Http, path: str, error_type: str, message: str) -> None:
    body = json.dumps({"errorType": error_type, "errorMessage": message}).encode()
    kind = f"Lambda-Runtime-Function-Error-Type: {error_type}"
    http.send(f"POST /2018-06-01/runtime/{path} HTTP/1.1", f"Content-Length: {len(body)}", kind, body=body)
    await http.answer()
    sys.exit(1)


async def poll() -> None:
    http = await connect()
    while True:
        request_id, raw = await http.next()
        event = json.loads(raw)
        for step in json.loads(event["body"]) if "body" in event else [{"json": event}]:
            await SCRIPT[next(iter(step))](http, request_id, next(iter(step.values())))


async def whole(http: Http, request_id: str, value: object) -> None:
    http.respond(request_id, body=json.dumps(value).encode())
    await http.answer()


async def variables(http: Http, request_id: str, names: list[str]) -> None:
    await whole(http, request_id, {name: os.environ.get(name) for name in names} | {"pid": os.getpid()})


async def prelude(http: Http, request_id: str, value: object) -> None:
    http.stream(request_id)
    http.chunk(json.dumps(value).encode() + b"\0" * 8)


async def chunk(http: Http, request_id: str, value: str) -> None:
    http.chunk(value.encode())
    await http.writer.drain()


async def byte_by_byte(http: Http, request_id: str, value: str) -> None:
    http.stream(request_id)
    for byte in value.encode():
        http.chunk(bytes([byte]))
        await asyncio.sleep(0)


async def bulk(http: Http, request_id: str, megabytes: int) -> None:
    for _ in range(megabytes):
        http.chunk(b"x" * 1_000_000)
        await http.writer.drain()


async def paced(http: Http, request_id: str, chunks: int) -> None:
    """Each chunk holds the time at which it was sent."""
    for _ in range(chunks):
        await asyncio.sleep(0.005)
        http.chunk(b"%.6f\n" % time.time())


async def end(http: Http, request_id: str, trailers: list[str]) -> None:
    http.end(*trailers)
    await http.answer()


async def error(http: Http, request_id: str, value: object) -> None:
    kind = "Lambda-Runtime-Function-Error-Type: ValueError"
    http.respond(request_id, kind, path="error", body=json.dumps(value).encode())
    await http.answer()


async def wait_for_file(http: Http, request_id: str, path: str) -> None:
    while not os.path.exists(path):
        await asyncio.sleep(0.005)


async def touch(http: Http, request_id: str, path: str) -> None:
    open(path, "w").close()


async def status_of_refusal(http: Http, request_id: str, path: str) -> None:
    """Writes the status of the next answer into a file."""
    status, _, _ = await http.answer()
    with open(path, "w") as file:
        file.write(str(status))


async def status_of_answer(http: Http, request_id: str, path: str) -> None:
    http.respond(request_id)
    await status_of_refusal(http, request_id, path)


async def reconnect(http: Http, request_id: str, value: object) -> None:
    http.writer.close()
    fresh = await connect()
    http.reader, http.writer = fresh.reader, fresh.writer


async def tick(http: Http, request_id: str, path: str) -> None:
    """Leaves a task behind that writes a byte each millisecond."""

    async def ticking() -> None:
        while True:
            with open(path, "ab") as file:
                file.write(b".")
            await asyncio.sleep(0.001)

    background.add(asyncio.create_task(ticking()))


async def wait_for_growth(http: Http, request_id: str, file_and_size: list) -> None:
    path, size = file_and_size
    while os.path.getsize(path) <= size:
        await asyncio.sleep(0.001)


async def leave(http: Http, request_id: str, code: int) -> None:
    await http.writer.drain()
    os._exit(code)


async def hang(http: Http, request_id: str, value: object) -> None:
    await asyncio.Event().wait()


background: set[asyncio.Task[None]] = set()

# An event's body is a JSON list of steps such as {"chunk": "text"}; without a body the event itself is echoed.
SCRIPT = {
    "json": whole,
    "variables": variables,
    "prelude": prelude,
    "chunk": chunk,
    "byte_by_byte": byte_by_byte,
    "bulk": bulk,
    "paced": paced,
    "end": end,
    "error": error,
    "wait_for_file": wait_for_file,
    "touch": touch,
    "status_of_refusal": status_of_refusal,
    "status_of_answer": status_of_answer,
    "reconnect": reconnect,
    "tick": tick,
    "wait_for_growth": wait_for_growth,
    "exit": leave,
    "hang": hang,
}

if __name__ == "__main__":
    try:
        asyncio.run(run())
    except (ConnectionError, asyncio.IncompleteReadError):
        sys.exit(1)  # The Runtime API has gone.
