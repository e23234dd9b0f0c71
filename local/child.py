"""Helper programs of the local stack (the table, the demo model): how they start, report and end.

A child listens on loopback, prints one line `ready http://127.0.0.1:PORT` on stdout, logs to stderr, and ends
quietly on SIGTERM, SIGINT, or when the pipe on its stdin closes. The pipe is what makes it die with the stack
however the stack dies, SIGKILL included. Knows nothing of what a child serves.

An ASGI child:

    asyncio.run(serve_child(app, port))

Any other child, here WSGI in a thread:

    server = make_server("127.0.0.1", port, app, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    announce(server.server_port)
    asyncio.run(told_to_end())
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import stat
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import uvicorn

ASGIApp = Callable[
    [
        MutableMapping[str, Any],
        Callable[[], Awaitable[MutableMapping[str, Any]]],
        Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ],
    Awaitable[None],
]

READY = "ready "
ROOT = Path(__file__).resolve().parent.parent


class ChildFailed(Exception):
    """A child ended, or said something else, before it said that it was ready."""


# --- the child's side ---------------------------------------------------------------------------------------


async def serve_child(app: ASGIApp, port: int = 0) -> None:
    """Serves an ASGI app on 127.0.0.1 until the child is told to end; runs its lifespan.

    `port` 0 takes a free one. Open replies get one second to finish at the end, then they are cancelled.
    Raises OSError when the port is taken.
    """
    end = _end()
    server = LoopbackServer(app, listen(port))
    await server.start()
    announce(server.port)
    await end.wait()
    await server.stop()


def announce(port: int) -> None:
    """Prints the ready line. Call it once, when requests are accepted."""
    print(f"{READY}http://127.0.0.1:{port}", flush=True)


async def told_to_end() -> None:
    """Returns at SIGTERM, SIGINT, or when the pipe on stdin is closed by the stack.

    Started by hand (stdin is a terminal, a file or /dev/null), only the signals count.
    """
    await _end().wait()


def _end() -> asyncio.Event:
    loop = asyncio.get_running_loop()
    end = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end.set)

    def watch_stdin() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 4096):
                pass
        # The loop may be closed already when a signal came first.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(end.set)

    if _stdin_is_a_pipe():
        threading.Thread(target=watch_stdin, name="stdin", daemon=True).start()
    return end


def _stdin_is_a_pipe() -> bool:
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def listen(port: int = 0) -> socket.socket:
    """A listening socket on 127.0.0.1, on a free port if `port` is 0. Raises OSError when the port is taken or none."""
    # Named in full: asyncio sets TCP_NODELAY only on sockets that say they are TCP, and a token must not wait for
    # an ACK.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(2048)
    except OverflowError as error:
        listener.close()
        raise OSError(errno.EINVAL, "ports end at 65535") from error
    except OSError:
        listener.close()
        raise
    return listener


class LoopbackServer(uvicorn.Server):
    """uvicorn on 127.0.0.1 as a guest in another loop: it leaves signals alone and logs little."""

    def __init__(self, app: ASGIApp, listener: socket.socket, log_level: str = "warning") -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                log_level=log_level,
                access_log=False,
                server_header=False,
                ws="none",
                timeout_graceful_shutdown=1,
            )
        )
        self.port: int = listener.getsockname()[1]
        self._listener = listener
        self._serving: asyncio.Task[None] | None = None
        self._accepting = asyncio.Event()
        self._exiting = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def start(self) -> None:
        """Returns when requests are answered."""
        self._serving = asyncio.create_task(self.serve(sockets=[self._listener]))
        waiting = asyncio.create_task(self._accepting.wait())
        await asyncio.wait({self._serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._serving.done():
            raise ChildFailed("the server ended while starting")

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._accepting.set()

    async def main_loop(self) -> None:
        # uvicorn's own looks ten times a second whether it should exit.
        while not await self.on_tick(0):
            try:
                async with asyncio.timeout(1):
                    await self._exiting.wait()
            except TimeoutError:
                pass  # Once a second `on_tick` renews the Date header.

    async def stop(self) -> None:
        """Stops accepting, gives open replies one second, ends."""
        self.should_exit = True
        self._exiting.set()
        if self._serving:
            await self._serving


# --- the stack's side ---------------------------------------------------------------------------------------


class Child:
    """A child that has reported ready. `url` is its address without a trailing slash."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.process = process
        self.url = url

    async def stop(self) -> None:
        """Closes its stdin and waits two seconds for it, then kills it. May be called twice."""
        await _stop(self.process)


async def start_child(
    arguments: Sequence[str], env: Mapping[str, str] | None = None, ready_within: float = 30
) -> Child:
    """Starts `python <arguments>`, such as `["-m", "local.table", "--port", "0"]`, and awaits its ready line.

    `env` is its whole environment (default: ours); the repository is on its module path in any case.
    `ready_within` is in seconds. stderr is ours. Raises ChildFailed when the child ends or stays silent.
    """
    environment = dict(os.environ if env is None else env)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), environment.get("PYTHONPATH")]))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=environment,
        # Ctrl-C in the terminal goes to the stack alone, which then ends its children in order.
        start_new_session=True,
    )
    assert process.stdout is not None
    name = " ".join(arguments)
    try:
        async with asyncio.timeout(ready_within):
            line = (await process.stdout.readline()).decode(errors="replace").strip()
    except TimeoutError:
        await _kill(process)
        raise ChildFailed(f"{name} was not ready within {ready_within:g} s") from None
    except BaseException:
        await _kill(process)
        raise
    if not line.startswith(READY):
        # Usually it has ended already: killed in that moment its exit code would be lost (subprocess polls first).
        await _stop(process)
        said = f" after {line!r}" if line else ""
        raise ChildFailed(f"{name} ended{said} (exit code {process.returncode})")
    return Child(process, line.removeprefix(READY).rstrip("/"))


async def _stop(process: asyncio.subprocess.Process) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with asyncio.timeout(2):
            await process.wait()
    except TimeoutError:
        await _kill(process)


async def _kill(process: asyncio.subprocess.Process) -> None:
    try:
        process.kill()
    except ProcessLookupError:
        pass
    await process.wait()
