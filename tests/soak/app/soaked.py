"""The app of the soak: one path per way to answer well or badly, in bare ASGI, so that no framework smooths it over."""

import asyncio
from urllib.parse import parse_qsl

from response_streaming import StreamingMangum


async def app(scope, receive, send):
    if scope["type"] == "http":
        query = dict(parse_qsl(scope["query_string"].decode()))
        await PATHS[scope["path"]](Response(send), **{name: int(value) for name, value in query.items()})


class Response:
    def __init__(self, send):
        self._send = send

    async def start(self, *headers, status=200):
        await self._send({"type": "http.response.start", "status": status, "headers": list(headers)})

    async def write(self, data):
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self):
        await self._send({"type": "http.response.body"})


async def steady(response, id, pieces):
    await response.start((b"content-type", b"text/event-stream"), (b"x-id", b"%d" % id))
    for n in range(pieces):
        await response.write(b"%d:%d\n" % (id, n))
        await asyncio.sleep(0)
    await response.end()


async def single_bytes(response, count):
    await response.start()
    for n in range(count):
        await response.write(b"%d" % (n % 10))
    await response.end()


async def large(response, megabytes):
    await response.start()
    await response.write(b"x" * (megabytes * 1_000_000))
    await response.end()


async def huge_header(response, size):
    await response.start((b"x-huge", b"h" * size))
    await response.end()


async def bad_header(response):
    await response.start((b"x-bad", b"a\r\nset-cookie: stolen=1"))
    await response.end()


async def raises(response, after):
    await response.start()
    for _ in range(after):
        await response.write(b"x")
    raise ValueError("on purpose")


async def never_starts(response):
    pass


async def goes_on_after_the_end(response):
    await response.start()
    await response.write(b"whole")
    await response.end()
    await response.write(b"too much")


PATHS = {
    "/steady": steady,
    "/single-bytes": single_bytes,
    "/large": large,
    "/huge-header": huge_header,
    "/bad-header": bad_header,
    "/raises": raises,
    "/never-starts": never_starts,
    "/goes-on-after-the-end": goes_on_after_the_end,
}

handler = StreamingMangum(app, lifespan="off")
