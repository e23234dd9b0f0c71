"""Lambda's side of one environment, as thin as the client: what is measured through it is our runtime alone.

Hands out an invocation, reads the streamed reply from the runtime's own socket, and does nothing else. The Runtime API
with all its rules is `local/runtime_api.py`.
"""

from __future__ import annotations

import itertools
import json
import socket
import subprocess
import time
from queue import Queue

import h11

from bench.client import TIMEOUT, Exchange
from local.child import ChildFailed, listen
from local.environment import Configuration
from local.event import event_of

NEXT_END = b"\r\n\r\n"
CHUNKED_END = b"0\r\n\r\n"
PRELUDE_END = b"\0" * 8
REQUEST = {
    "method": "POST",
    "path": "/",
    "raw_path": b"/",
    "query_string": b"",
    "http_version": "1.1",
    "headers": [(b"content-type", b"application/json")],
}


class BareLambda:
    """One environment of a function, started at once. Takes invocations as the client takes requests.

    On Managed Instances (`max_concurrency`) it takes that many at once, from as many threads. A new one is ready: its
    first `GET /next` is here. Raises ChildFailed when it cannot be initialised.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._free: Queue[socket.socket] = Queue()
        self._invocations = itertools.count(1)
        with listen() as listener:
            listener.settimeout(TIMEOUT)
            address = f"127.0.0.1:{listener.getsockname()[1]}"
            self._process = subprocess.Popen(
                configuration.command,
                cwd=configuration.task_root,
                env=configuration.variables(address),
                stdout=2,  # its log; ours is for the tables
                start_new_session=True,
            )
            self._connections = [listener.accept()[0] for _ in range(configuration.max_concurrency or 1)]
        for connection in self._connections:
            connection.settimeout(TIMEOUT)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if connection.recv(4, socket.MSG_PEEK) != b"GET ":
                self.close()
                raise ChildFailed("our runtime could not be initialised; its log says why")
            _read_until(connection, NEXT_END)
            self._free.put(connection)

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for connection in self._connections:
            connection.close()

    def exchange(self, content: bytes) -> Exchange:
        """One invocation with `content` as the body of its request. Raises OSError when the runtime is gone."""
        event = json.dumps(event_of(REQUEST, content, url_id="bench", region="us-east-1", request_id="bench")).encode()
        head = (
            f"HTTP/1.1 200 OK\r\nLambda-Runtime-Aws-Request-Id: {next(self._invocations)}\r\n"
            f"Lambda-Runtime-Deadline-Ms: {int((time.time() + TIMEOUT) * 1000)}\r\n"
            f"Lambda-Runtime-Invoked-Function-Arn: bench\r\nContent-Length: {len(event)}\r\n\r\n"
        )
        connection = self._free.get()
        sent = time.monotonic_ns()
        connection.sendall(head.encode() + event)
        reads = _read_until(connection, CHUNKED_END)
        connection.sendall(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
        _read_until(connection, NEXT_END)
        self._free.put(connection)
        return _without_framing(sent, reads)


def _read_until(connection: socket.socket, end: bytes) -> list[tuple[int, bytes]]:
    reads: list[tuple[int, bytes]] = []
    tail = b""
    while not tail.endswith(end):
        piece = connection.recv(256 * 1024)
        if not piece:
            raise ConnectionResetError("the runtime closed its connection")
        reads.append((time.monotonic_ns(), piece))
        tail = (tail + piece[-len(end) :])[-len(end) :]
    return reads


def _without_framing(sent: int, reads: list[tuple[int, bytes]]) -> Exchange:
    """The reply as a client would see it: its chunks joined again, and its prelude made a status."""
    http = h11.Connection(h11.SERVER)
    prelude: bytes | None = None
    body: list[tuple[int, bytes]] = []
    for arrival, piece in reads:
        http.receive_data(piece)
        while (event := http.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            if not isinstance(event, h11.Data):
                continue
            if prelude is None:
                prelude, _, _ = bytes(event.data).partition(PRELUDE_END)  # a chunk of its own
            else:
                body.append((arrival, bytes(event.data)))
    return Exchange(sent, json.loads(prelude or b"{}").get("statusCode", 0), body)
