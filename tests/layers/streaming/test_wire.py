"""The bytes of the Runtime API, held against those of AWS's own Node.js client (captured on loopback)."""

import base64
import json

import pytest

from response_streaming import wire

# What aws-lambda-ric 4.0.2 for Node.js put on the socket after its request head.
NODE_BODY = (
    b'7a\r\n{"statusCode":200,"headers":{"Content-Type":"text/event-stream","X-Custom":"a"},'
    b'"cookies":["a=1; Path=/","b=2; HttpOnly"]}\r\n'
    b"8\r\n\0\0\0\0\0\0\0\0\r\n"
    b'f\r\ndata: {"n":1}\n\n\r\n'
    b"b\r\ndata: bye\n\n\r\n"
    b"0\r\n\r\n"
)
HEADERS = [
    (b"Content-Type", b"text/event-stream"),
    (b"X-Custom", b"a"),
    (b"Set-Cookie", b"a=1; Path=/"),
    (b"Set-Cookie", b"b=2; HttpOnly"),
]


def unchunk(body: bytes) -> bytes:
    data = b""
    while True:
        size, _, body = body.partition(b"\r\n")
        if not int(size, 16):
            return data
        data, body = data + body[: int(size, 16)], body[int(size, 16) + 2 :]


def split(stream: bytes) -> tuple[dict, bytes]:
    prelude, _, body = stream.partition(b"\0" * 8)
    return json.loads(prelude), body


def lower(prelude: dict) -> dict:
    return {**prelude, "headers": {name.lower(): value for name, value in prelude["headers"].items()}}


def test_a_stream_means_what_the_node_client_sends():
    ours = (
        wire.chunk(wire.prelude(200, HEADERS))
        + wire.chunk(b'data: {"n":1}\n\n')
        + wire.chunk(b"data: bye\n\n")
        + wire.END
    )
    (our_prelude, our_body), (node_prelude, node_body) = split(unchunk(ours)), split(unchunk(NODE_BODY))
    assert our_prelude == lower(node_prelude)
    assert our_body == node_body


def test_the_head_declares_mode_type_and_trailers():
    head = wire.streaming_request("r1", "127.0.0.1:9001", None).decode()
    assert head.startswith("POST /2018-06-01/runtime/invocation/r1/response HTTP/1.1\r\n")
    assert head.endswith("\r\n\r\n")
    lines = head.split("\r\n")
    for line in (
        "Host: 127.0.0.1:9001",
        "Lambda-Runtime-Function-Response-Mode: streaming",
        "Content-Type: application/vnd.awslambda.http-integration-response",
        "Transfer-Encoding: chunked",
        "Trailer: Lambda-Runtime-Function-Error-Type, Lambda-Runtime-Function-Error-Body",
    ):
        assert line in lines
    assert "Lambda-Runtime-Invocation-Id: n1" in wire.streaming_request("r1", "h:1", "n1").decode().split("\r\n")


def test_repeated_headers_are_joined_and_those_of_the_hop_are_dropped():
    headers = [
        (b"Vary", b"a"),
        (b"vary", b"b"),
        (b"Connection", b"close"),
        (b"Content-Length", b"3"),
        (b"Transfer-Encoding", b"chunked"),
    ]
    assert split(wire.prelude(204, headers)) == ({"statusCode": 204, "headers": {"vary": "a, b"}}, b"")


@pytest.mark.parametrize(
    "header", [(b"a b", b""), (b"", b"x"), (b"a", b"x\r\ny: z"), (b"a", b"\0"), (b"a:", b"x"), (b"\xc3\xa4", b"")]
)
def test_what_is_no_header_is_refused_before_anything_is_sent(header):
    with pytest.raises(ValueError, match="cannot be a header"):
        wire.prelude(200, [header])


def test_an_empty_piece_would_end_the_body_and_is_not_sent():
    assert wire.chunk(b"") == b""


def trailers(block: bytes) -> tuple[str, dict]:
    first, kind, body, *rest = block.split(b"\r\n")
    assert (first, rest) == (b"0", [b"", b""])
    name, _, value = body.partition(b": ")
    assert name == b"Lambda-Runtime-Function-Error-Body"
    return kind.partition(b": ")[2].decode(), json.loads(base64.b64decode(value))


def test_an_error_goes_into_trailers():
    error = {"errorType": "ValueError", "errorMessage": "mid-stream ü", "stackTrace": ["a", "b"], "requestId": "r"}
    kind, body = trailers(wire.end_with_error(error))
    assert kind == "ValueError"
    assert body == {"errorType": "ValueError", "errorMessage": "mid-stream ü", "stackTrace": ["a", "b"]}


@pytest.mark.parametrize("message", ["short", "ü" * 100_000, "😀" * 100_000])
def test_the_trailers_fit_lambdas_buffer_and_keep_the_innermost_frames(message):
    trace = [f'  File "/var/task/app.py", line {n}, in f\n    {"x" * 80}\n' for n in range(1_000)]
    block = wire.end_with_error({"errorType": "E", "errorMessage": message, "stackTrace": trace})
    assert len(block) < 4_096
    _, body = trailers(block)
    if message == "short":
        assert body["stackTrace"][-1] == trace[-1]


def test_an_error_type_cannot_break_out_of_its_header():
    kind, _ = trailers(wire.end_with_error({"errorType": "E\r\nX: y", "errorMessage": "", "stackTrace": []}))
    assert kind == "E??X: y"


def test_an_answer_is_read():
    assert wire.response_head(b"HTTP/1.1 202 Accepted\r\nContent-Length: 3\r\nA: b: c\r\n\r\n") == (
        202,
        {"content-length": "3", "a": "b: c"},
    )
    with pytest.raises(ValueError, match="not an HTTP response"):
        wire.response_head(b"SSH-2.0 x\r\n\r\n")
