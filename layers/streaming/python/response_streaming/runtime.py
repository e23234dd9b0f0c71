"""The runtime: initialises the function, then takes invocations until the environment ends.

One event loop lives as long as the environment. Error formats, context and handler loading are AWS's, from
`awslambdaric`; the bytes are in `wire.py`, the app's side in `cycle.py`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import sys
import traceback
from typing import Any

from awslambdaric import bootstrap, lambda_literals
from awslambdaric.lambda_runtime_exception import FaultException
from awslambdaric.lambda_runtime_marshaller import to_json
from mangum import Mangum

from response_streaming import logs, snapstart
from response_streaming.adapter import StreamingMangum, streams
from response_streaming.errors import InitFailed, RuntimeApiError
from response_streaming.runtime_api import Invocation, RuntimeApi, StreamedResponse

logger = logging.getLogger(__name__)


NEXT_ATTEMPTS = 5
NEXT_DELAY = 0.1
"""Seconds before `next` is asked again where several invocations share the environment; doubled each time."""


def run() -> None:
    """Runs the function named by `_HANDLER` against the Runtime API at `AWS_LAMBDA_RUNTIME_API`; never returns."""
    sys.stdout = bootstrap.Unbuffered(sys.stdout)
    sys.stderr = bootstrap.Unbuffered(sys.stderr)
    with bootstrap.create_log_sink() as sink:
        logs.set_up(sink)
        bootstrap._log_preview_runtime_warning()
        reporter = Reporter(os.environ["AWS_LAMBDA_RUNTIME_API"], sink)
        try:
            # Before the loop runs, because a module may use `asyncio.run` while it is imported.
            handler = _streaming(bootstrap._get_handler(os.environ["_HANDLER"]))
        except Exception as error:
            sys.exit(asyncio.run(reporter.init_failed(InitFailed(error))))
        # It was off while modules were imported (`bootstrap.py`); what they left is not looked through again.
        gc.freeze()
        gc.enable()
        sys.exit(asyncio.run(Runtime(handler, reporter).run()))


class Runtime:
    """Serves one handler. With `AWS_LAMBDA_MAX_CONCURRENCY` (Managed Instances) that many invocations at once share
    the loop, each on a connection of its own."""

    def __init__(self, handler: StreamingMangum, reporter: Reporter) -> None:
        self._handler = handler
        self._reporter = reporter
        self._concurrency = int(os.environ.get("AWS_LAMBDA_MAX_CONCURRENCY") or 1)

    async def run(self) -> int:
        """Starts the app and polls until the Runtime API is gone or SIGTERM comes; returns the exit status."""
        try:
            await self._start()
        except InitFailed as failed:
            return await self._reporter.init_failed(failed)
        pollers = [asyncio.create_task(self._poll()) for _ in range(self._concurrency)]
        polling = asyncio.gather(*pollers)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, polling.cancel)
        try:
            await polling
        except asyncio.CancelledError:
            # That is raised when the first has ended, an idle one; those in the middle of an answer have yet to.
            await asyncio.wait(pollers)
            await self._handler.shutdown()
        except (RuntimeApiError, OSError) as gone:
            logger.error("the Runtime API is gone: %s", gone)
            return 1
        return 0

    async def _start(self) -> None:
        """With SnapStart the app starts after the restore: what it opens would not survive the snapshot."""
        if snapstart.is_on():
            await snapstart.snapshot(RuntimeApi(self._reporter.address))
            await snapstart.restored(self._handler.startup)
            return
        try:
            await self._handler.startup()
        except Exception as error:
            raise InitFailed(error) from error

    async def _poll(self) -> None:
        api = RuntimeApi(self._reporter.address)
        while True:
            invocation = await self._next(api)
            logs.request_id.set(invocation.request_id)
            logs.tenant_id.set(invocation.headers.get("lambda-runtime-aws-tenant-id"))
            if self._concurrency == 1:  # a variable of the process cannot belong to one of many
                bootstrap.update_xray_env_variable(invocation.headers.get("lambda-runtime-trace-id"))
            await self._serve(api, invocation)

    async def _next(self, api: RuntimeApi) -> Invocation:
        """Alone, a failure ends the environment; among many it is given some time to pass, as AWS's client does."""
        for attempt in range(NEXT_ATTEMPTS if self._concurrency > 1 else 1):
            try:
                return await api.next()
            except (RuntimeApiError, OSError) as error:
                failure = error
                if self._concurrency > 1:
                    logger.warning("no next invocation: %s", error)
                    await asyncio.sleep(NEXT_DELAY * 2**attempt)
        raise failure

    async def _serve(self, api: RuntimeApi, invocation: Invocation) -> None:
        response = await api.stream(invocation)
        try:
            event = json.loads(invocation.body)
            context = _context(invocation)
            if streams(event):
                await self._stream(response, event, context)
            else:
                answer = to_json(await self._handler.buffered(event, context)).encode()
                _check(await api.respond(invocation, answer))
        except Exception as error:
            description = describe(error, invocation.request_id)
            self._reporter.log(description)
            try:
                # Only for a response that never began; asked while one is open, Lambda refuses it.
                _check(await api.error(invocation, description, _xray_cause(error)))
            except OSError as gone:
                logger.warning("the error could not be reported: %s", gone)  # whether Lambda is there, `next` will tell

    async def _stream(self, response: StreamedResponse, event: dict[str, Any], context: Any) -> None:
        """Runs the app into `response`. Raises what the app raised as long as the response has not begun."""
        cycle = self._handler.cycle(event, context, response)
        failure: dict[str, Any] | None = None
        try:
            await cycle.respond()
        except Exception as error:
            if not response.started:
                raise
            failure = describe(error, logs.request_id.get())
            self._reporter.log(failure)
        if response.started:
            _check(await response.finish(failure))
        await cycle.rest()


class Reporter:
    """Tells of failures: to the log, and of those in the initialisation to the Runtime API at `address`."""

    def __init__(self, address: str, sink: Any) -> None:
        self.address = address
        self._sink = sink

    def log(self, description: dict[str, Any]) -> None:
        bootstrap.log_error(description, self._sink)

    async def init_failed(self, failed: InitFailed) -> int:
        """Reports why this environment will take no invocation; returns the exit status."""
        description = describe(failed.error)
        if failed.exit_code == 1:  # as awslambdaric does, for errors of loading the function
            logging.warning(lambda_literals.lambda_unhandled_exception_warning_message)
        self.log(description)
        api = RuntimeApi(self.address)
        if failed.exit_code == snapstart.AFTER_RESTORE_FAILED:
            status = await api.restore_error(description, str(failed.kind))
        else:
            status = await api.init_error(description, failed.kind)
        if status != 202:
            logger.error("Lambda did not take the report of the failed initialisation: it answered %s", status)
        return failed.exit_code


def _check(status: int) -> None:
    if status != 202:
        logger.warning("Lambda did not take the whole response: it answered %s", status or "nothing")


def describe(error: BaseException, request_id: str | None = None) -> dict[str, Any]:
    """An exception in the form of Lambda's error JSON: `errorMessage`, `errorType`, `requestId`, `stackTrace`."""
    if isinstance(error, FaultException):
        kind, message, trace = error.exception_type, error.msg, error.trace
    else:
        kind, message = type(error).__name__, str(error)
        trace = traceback.format_list(_frames_of_the_function(error))
    description: dict[str, Any] = bootstrap.make_error(message, kind, trace, request_id)
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
    context = bootstrap.create_lambda_context(
        headers.get("lambda-runtime-client-context"),
        headers.get("lambda-runtime-cognito-identity"),
        invocation.deadline_ms,
        invocation.request_id,
        headers.get("lambda-runtime-invoked-function-arn"),
        headers.get("lambda-runtime-aws-tenant-id"),
    )
    # Where many invocations share a process, the variable _X_AMZN_TRACE_ID cannot tell.
    context.xray_trace_id = headers.get("lambda-runtime-trace-id")
    return context


def _frames_of_the_function(error: BaseException) -> list[tuple[str, int, str, str]]:
    """A traceback without the frames it begins with that belong to a runtime, as awslambdaric cuts off its own."""
    frames: list[tuple[str, int, str, str]] = bootstrap.extract_traceback(error.__traceback__)
    ours = os.path.dirname(__file__) + os.sep
    first = next(
        (n for n, frame in enumerate(frames) if not frame[0].startswith(ours) and "/bootstrap.py" not in frame[0]), 0
    )
    return frames[first:]


def _xray_cause(error: BaseException) -> str:
    if isinstance(error, FaultException):  # as in awslambdaric.bootstrap.handle_event_request
        fault = bootstrap.make_xray_fault("LambdaValidationError", error.msg, os.getcwd(), [])
    else:
        fault = bootstrap.make_xray_fault(type(error).__name__, str(error), os.getcwd(), _frames_of_the_function(error))
    return str(to_json(fault))
