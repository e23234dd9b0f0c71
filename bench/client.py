"""A client that costs the measured nothing: a blocking socket, the time of every read, and no work until the end."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

import h11

TIMEOUT = 60.0
"""Seconds without a byte after which a subject counts as broken."""


@dataclass(frozen=True)
class Exchange:
    """A request and its answer. Times are nanoseconds of CLOCK_MONOTONIC."""

    sent: int
    """When the request began to be written."""
    status: int
    body: list[tuple[int, bytes]]
    """What each read brought, without HTTP's framing, and when."""


def exchange(method: str, url: str, content: bytes = b"") -> Exchange:
    """One request on a connection of its own. Raises OSError, and h11.RemoteProtocolError for half an answer."""
    address = urlsplit(url)
    head = (
        f"{method} {address.path or '/'} HTTP/1.1\r\nHost: {address.netloc}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    with socket.create_connection((address.hostname, address.port or 80), TIMEOUT) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reads: list[tuple[int, bytes]] = []
        sent = time.monotonic_ns()
        connection.sendall(head.encode() + content)
        while piece := connection.recv(256 * 1024):
            reads.append((time.monotonic_ns(), piece))
        reads.append((time.monotonic_ns(), b""))
    return _without_framing(method, sent, reads)


def _without_framing(method: str, sent: int, reads: list[tuple[int, bytes]]) -> Exchange:
    http = h11.Connection(h11.CLIENT)
    http.send(h11.Request(method=method, target="/", headers=[("Host", "bench"), ("Connection", "close")]))
    http.send(h11.EndOfMessage())
    status = 0
    body: list[tuple[int, bytes]] = []
    for arrival, piece in reads:
        http.receive_data(piece)
        while (event := http.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            if isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body.append((arrival, bytes(event.data)))
            elif isinstance(event, h11.EndOfMessage):
                return Exchange(sent, status, body)
    raise h11.RemoteProtocolError("the answer has no end")
