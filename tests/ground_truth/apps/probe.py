"""A runtime that breaks the rules: each invocation is a case named by its path, and `/report` tells what was answered.

Needs nothing but the standard library and knows HTTP only as far as it must, for it has to send what is none.
"""

import json
import os
import socket
import sys

NEXT = b"GET /2018-06-01/runtime/invocation/next HTTP/1.1\r\nHost: x\r\n\r\n"
STREAMING = {
    "Lambda-Runtime-Function-Response-Mode": "streaming",
    "Content-Type": "application/vnd.awslambda.http-integration-response",
    "Trailer": "Lambda-Runtime-Function-Error-Type, Lambda-Runtime-Function-Error-Body",
    "Transfer-Encoding": "chunked",
}
PRELUDE = b'{"statusCode":200}' + b"\0" * 8
ERROR = b'{"errorType":"E","errorMessage":"m"}'


def head(path, headers):
    lines = [f"POST /2018-06-01/runtime/{path} HTTP/1.1", "Host: x", *(f"{k}: {v}" for k, v in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def post(path, body=b'"ok"', **headers):
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return head(path, {"Content-Type": "application/json", "Content-Length": len(body), **headers}) + body


def chunk(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


def connect():
    host, port = os.environ["AWS_LAMBDA_RUNTIME_API"].rsplit(":", 1)
    connection = socket.create_connection((host, int(port)))
    connection.settimeout(10)
    return connection


def answer(connection):
    """What is answered: status, headers, body. Status 0: the connection ended without an answer."""
    stream = connection.makefile("rb")
    try:
        status = int(stream.readline().split()[1])
    except (ConnectionError, IndexError):
        return 0, {}, b""
    headers = {}
    while line := stream.readline().strip():
        name, value = line.decode().split(":", 1)
        headers[name.lower()] = value.strip()
    return status, headers, stream.read(int(headers.get("content-length", 0)))


def told(status, headers, body):
    """What there is to say of an answer: status and error type."""
    document = json.loads(body) if status >= 400 and body.startswith(b"{") else {}
    return {"status": status} | ({"errorType": document["errorType"]} if "errorType" in document else {})


def ask(request, end=False):
    with connect() as connection:
        try:
            connection.sendall(request)
            if end:
                connection.shutdown(socket.SHUT_WR)
        except ConnectionError:
            pass  # It has heard enough: what it says can still be read.
        return told(*answer(connection))


def trailers(size):
    """The end of a chunked body with a block of trailers of so many bytes."""
    block = b"Lambda-Runtime-Function-Error-Type: E\r\nLambda-Runtime-Function-Error-Body: %b\r\n\r\n"
    return b"0\r\n" + block % (b"A" * (size - len(block % b"")))


def cases(id):
    """Of one invocation: what is sent, one after another. Bytes are a request, a tuple asks to end it halfway."""
    response, stream = f"invocation/{id}/response", head(f"invocation/{id}/response", STREAMING) + chunk(PRELUDE)
    undeclared = {key: value for key, value in STREAMING.items() if key != "Trailer"}
    return {
        "accepted": [post(response)],
        "streamed": [stream + chunk(b"1") + b"0\r\n\r\n"],
        "empty-stream": [head(response, STREAMING) + b"0\r\n\r\n"],
        "error": [post(f"invocation/{id}/error", ERROR)],
        "another-id": [post("invocation/another/response"), post("invocation/another/error", ERROR), post(response)],
        "twice": [post(response), post(response)],
        "error-after-response": [post(response), post(f"invocation/{id}/error", ERROR)],
        "response-after-error": [post(f"invocation/{id}/error", ERROR), post(response)],
        "next-again": [NEXT, post(response)],
        "nothing-there": [post("nothing"), post(response)],
        "init-error-late": [post("init/error", ERROR), post(response)],
        "restore-without-snapstart": [NEXT.replace(b"invocation", b"restore"), post(response)],
        "restore-error-without-snapstart": [post("restore/error", ERROR), post(response)],
        "cut-stream": [(stream,), post(response)],
        "cut-body": [(post(response, Content_Length=100),), post(response)],
        "not-a-chunk": [stream + b"what?\r\n", post(response)],
        "trailers-that-fit": [stream + trailers(4_000)],
        "trailers-too-large": [stream + trailers(4_200), post(response)],
        "trailers-undeclared": [head(response, undeclared) + chunk(PRELUDE) + trailers(200)],
        "as-large-as-allowed": [post(response, b'"' + b"x" * 6_291_554 + b'"')],
        "too-large": [post(response, b'"' + b"x" * 6_291_555 + b'"'), post(response)],
        "unknown-mode": [post(response, Lambda_Runtime_Function_Response_Mode="loud"), NEXT, post(response)],
        "another-nonce": [post(response, Lambda_Runtime_Invocation_Id="another"), post(response)],
    }


def main():
    reports = {}
    while True:
        with connect() as connection:
            connection.sendall(NEXT)
            status, headers, body = answer(connection)
        if status != 200:
            sys.exit(1)
        id, case = headers["lambda-runtime-aws-request-id"], json.loads(body)["rawPath"][1:]
        if case == "report":
            ask(post(f"invocation/{id}/response", json.dumps(reports).encode()))
            continue
        reports[case] = [ask(*one, end=True) if isinstance(one, tuple) else ask(one) for one in cases(id)[case]]
        print(f"{case}: {json.dumps(reports[case])}", flush=True)


if __name__ == "__main__":
    main()
