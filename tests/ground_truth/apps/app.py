"""What AWS's code is shown: a plain ASGI app, whose paths are the cases of the protocol and the ways to fail."""

import asyncio
import http.client
import json
import logging
import os
from collections import Counter

from response_streaming import StreamingMangum

logger = logging.getLogger(__name__)

EVENT_STREAM = [
    (b"content-type", b"text/event-stream"),
    (b"x-custom", b"a"),
    (b"set-cookie", b"a=1; Path=/"),
    (b"set-cookie", b"b=2; HttpOnly"),
]

meeting = asyncio.Condition()
arrived: Counter[str] = Counter()


async def app(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError("no lifespan here")
    path, query = scope["path"], scope["query_string"].decode()

    async def start(status=200, headers=EVENT_STREAM):
        await send({"type": "http.response.start", "status": status, "headers": headers})

    async def body(data, more=True):
        await send({"type": "http.response.body", "body": data, "more_body": more})

    async def answer(value):
        await start(headers=[(b"content-type", b"application/json")])
        await body(json.dumps(value).encode(), more=False)

    match path:
        case "/events" | "/fails":
            await start()
            await body(b'data: {"n":1}\n\n')
            await body(b'data: {"n":2}\n\n')
            if path == "/fails":
                raise ValueError("mid-stream ü")
            await body(b"data: bye\n\n", more=False)
        case "/fails-loudly":
            await start()
            await body(b"begun")
            fail_loudly(100)
        case "/large":
            await start()
            for _ in range(1_000):
                await body(b"x")
            await body(b"y" * 1_000_000)
            await body(b"", more=False)
        case "/endless":
            # Forty times what Lambda takes in one piece, unless somebody says that it is enough.
            await start()
            for n in range(4_000):
                try:
                    await body(b"z" * 65_536)
                except ConnectionError:
                    logger.warning("stopped after %d pieces", n)
                    raise
            await body(b"", more=False)
        case "/bad-header":
            await start(headers=[(b"x-bad", b"a\r\nSet-Cookie: b=1")])
            await body(b"never", more=False)
        case "/throws":
            raise ValueError("before the first write")
        case "/empty":
            await start()
            await body(b"", more=False)
        case "/no-content":
            await start(204, [])
            await body(b"", more=False)
        case "/hangs":
            await start()
            await body(b"begun")
            await asyncio.Event().wait()
        case "/dies":
            await start()
            await body(b"begun")
            os._exit(3)
        case "/context":
            await answer(seen(scope["aws.context"]))
        case "/meets":
            # Says who it is, then waits until two invocations are here at the same time.
            request_id = scope["aws.context"].aws_request_id
            logger.warning("%s came", query)
            await start(headers=[(b"content-type", b"text/plain")])
            await body(f"{os.getpid()} {request_id} ".encode())
            await meet(query.split("-")[0])
            logger.warning("%s met", query)
            await body(query.encode(), more=False)
        case "/answers-elsewhere":
            await answer(await asyncio.to_thread(answer_elsewhere, scope["aws.context"].aws_request_id, query))


def fail_loudly(depth):
    """With more of a message and of a trace than fits into trailers."""
    if depth:
        fail_loudly(depth - 1)
    raise ValueError("ü" * 10_000)


def seen(context):
    client = context.client_context
    return {
        "pid": os.getpid(),
        "request_id": context.aws_request_id,
        "arn": context.invoked_function_arn,
        "remaining": context.get_remaining_time_in_millis(),
        "tenant_id": context.tenant_id,
        "client": client and {"custom": client.custom, "title": client.client and client.client.app_title},
        "w3c": context.w3c(),
        "trace_id": os.environ.get("_X_AMZN_TRACE_ID"),
        "identity": context.identity.cognito_identity_id,
        "name": context.function_name,
        "memory": context.memory_limit_in_mb,
        "log_stream": context.log_stream_name,
        "execution_env": os.environ.get("AWS_EXECUTION_ENV"),
    }


async def meet(place):
    async with meeting:
        arrived[place] += 1
        meeting.notify_all()
        await asyncio.wait_for(meeting.wait_for(lambda: arrived[place] >= 2), 10)


def answer_elsewhere(request_id, invocation_id):
    """What the Runtime API says to somebody who answers this invocation with another nonce."""
    connection = http.client.HTTPConnection(os.environ["AWS_LAMBDA_RUNTIME_API"])
    headers = {"Lambda-Runtime-Invocation-Id": invocation_id} if invocation_id else {}
    connection.request("POST", f"/2018-06-01/runtime/invocation/{request_id}/response", b'"stolen"', headers)
    response = connection.getresponse()
    return {"status": response.status, "body": response.read().decode()}


handler = StreamingMangum(app)


def tells(event, context):
    """A plain function, for AWS's own loop."""
    return seen(context)
