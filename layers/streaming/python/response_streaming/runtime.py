"""The runtime: initialises the function, then takes invocations until the environment ends.

One event loop lives as long as the environment. Error formats, context and handler loading are AWS's, from
`awslambdaric`; the bytes are in `wire.py`, the app's side in `cycle.py`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import traceback
from typing import Any

from awslambdaric import bootstrap
from awslambdaric.lambda_runtime_exception import FaultException
from awslambdaric.lambda_runtime_marshaller import to_json
from mangum import Mangum

from response_streaming import logs
from response_streaming.adapter import StreamingMangum, streams
from response_streaming.errors import ResponseRefused, RuntimeApiError
from response_streaming.runtime_api import Invocation, RuntimeApi, StreamedResponse

logger = logging.getLogger(__name__)


def run() -> None:
    """Runs the function named by `_HANDLER` against the Runtime API at `AWS_LAMBDA_RUNTIME_API`; never returns."""
    sys.stdout = bootstrap.Unbuffered(sys.stdout)
    sys.stderr = bootstrap.Unbuffered(sys.stderr)
    address = os.environ["AWS_LAMBDA_RUNTIME_API"]
    with bootstrap.create_log_sink() as sink:
        logs.set_up(sink)
        try:
            # Before the loop runs, because a module may use `asyncio.run` while it is imported.
            handler = bootstrap._get_handler(os.environ["_HANDLER"])
            runtime = Runtime(_streaming(handler), address, sink)
        except FaultException as fault:
            sys.exit(_init_failed(address, sink, bootstrap.make_error(fault.msg, fault.exception_type, fault.trace)))
        except Exception as error:
            sys.exit(_init_failed(address, sink, describe(error)))
        sys.exit(asyncio.run(runtime.run()))


class Runtime:
    """Serves one handler. `concurrency` invocations at once, each on a connection of its own."""

    def __init__(self, handler: StreamingMangum, address: str, sink: Any) -> None:
        self._handler = handler
        self._address = address
        self._sink = sink
        self._concurrency = int(os.environ.get("AWS_LAMBDA_MAX_CONCURRENCY") or 1)

    async def run(self) -> int:
        """Starts the app and polls until the Runtime API is gone or SIGTERM comes; returns the exit status."""
        try:
            await self._handler.startup()
        except Exception as error:
            _log_error(describe(error), self._sink)
            await RuntimeApi(self._address).init_error(describe(error))
            return 1
        pollers = asyncio.gather(*(self._poll() for _ in range(self._concurrency)))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, pollers.cancel)
        try:
            await pollers
        except asyncio.CancelledError:
            await self._handler.shutdown()
        except (RuntimeApiError, OSError) as gone:
            logger.error("the Runtime API is gone: %s", gone)
            return 1
        return 0

    async def _poll(self) -> None:
        api = RuntimeApi(self._address)
        while True:
            invocation = await api.next()
            logs.request_id.set(invocation.request_id)
            logs.tenant_id.set(invocation.headers.get("lambda-runtime-aws-tenant-id"))
            bootstrap.update_xray_env_variable(invocation.headers.get("lambda-runtime-trace-id"))
            await self._serve(api, invocation)

    async def _serve(self, api: RuntimeApi, invocation: Invocation) -> None:
        response = await api.stream(invocation)
        try:
            event = json.loads(invocation.body)
            context = _context(invocation)
            if streams(event):
                await self._stream(response, event, context)
            else:
                await api.respond(invocation, to_json(await self._handler.buffered(event, context)).encode())
        except Exception as error:
            description = describe(error, invocation.request_id)
            _log_error(description, self._sink)
            # `/error` is for a response that never began; asked while one is open, Lambda refuses it.
            await api.error(invocation, description, _xray_cause(error))

    async def _stream(self, response: StreamedResponse, event: dict[str, Any], context: Any) -> None:
        """Runs the app into `response`. Raises what the app raised as long as the response has not begun."""
        cycle = self._handler.cycle(event, context, response)
        failure: Exception | None = None
        try:
            await cycle.run()
        except ResponseRefused as refused:
            logger.warning("the response was refused: %s", refused)
        except Exception as error:
            if not cycle.started:
                raise
            failure = error
            _log_error(describe(error, logs.request_id.get()), self._sink)
        status = await response.finish(describe(failure) if failure and not cycle.finished else None)
        if status != 202:
            logger.warning("Lambda did not take the whole response: it answered %s", status or "nothing")


def describe(error: BaseException, request_id: str | None = None) -> dict[str, Any]:
    """An exception in the form of Lambda's error JSON: `errorMessage`, `errorType`, `requestId`, `stackTrace`."""
    frames = traceback.extract_tb(error.__traceback__)
    description: dict[str, Any] = bootstrap.make_error(
        str(error), type(error).__name__, traceback.format_list(frames), request_id
    )
    return description


def _streaming(handler: Any) -> StreamingMangum:
    if isinstance(handler, StreamingMangum):
        return handler
    if isinstance(handler, Mangum):  # an app that was written for Mangum streams without a change
        options = {key: handler.config[key] for key in ("api_gateway_base_path", "text_mime_types", "exclude_headers")}
        return StreamingMangum(
            handler.app, lifespan=handler.lifespan, custom_handlers=handler.custom_handlers, **options
        )
    raise FaultException(
        FaultException.HANDLER_NOT_FOUND,
        f"Handler '{os.environ['_HANDLER']}' is a {type(handler).__name__}; the streaming runtime wants "
        "handler = StreamingMangum(app). To run a plain function, remove AWS_LAMBDA_EXEC_WRAPPER.",
    )


def _context(invocation: Invocation) -> Any:
    headers = invocation.headers
    return bootstrap.create_lambda_context(
        headers.get("lambda-runtime-client-context"),
        headers.get("lambda-runtime-cognito-identity"),
        invocation.deadline_ms,
        invocation.request_id,
        headers.get("lambda-runtime-invoked-function-arn"),
        headers.get("lambda-runtime-aws-tenant-id"),
    )


def _xray_cause(error: BaseException) -> str:
    frames = bootstrap.extract_traceback(error.__traceback__)
    return str(to_json(bootstrap.make_xray_fault(type(error).__name__, str(error), os.getcwd(), frames)))


def _log_error(description: dict[str, Any], sink: Any) -> None:
    bootstrap.log_error(description, sink)


def _init_failed(address: str, sink: Any, description: dict[str, Any]) -> int:
    _log_error(description, sink)
    asyncio.run(RuntimeApi(address).init_error(description))
    return 1
