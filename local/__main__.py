"""`python -m local`: the whole stack for a person at a terminal. Options, what is printed, signals; nothing else."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import shlex
import signal
import sys
from pathlib import Path

from local.callers import LOOPBACK, is_origin
from local.child import ChildFailed
from local.cors import Cors
from local.function_url import SOURCES
from local.invocation import InitError
from local.stack import AGENT, MODELS, LocalStack

DESCRIPTION = """\
Lambda on a laptop: runs the agent behind a function URL on loopback, streaming, through the same runtime code as on
AWS. A table and a model come with it; nothing leaves this machine unless you name a model of your own.

Variables of your shell reach the function, such as OPENAI_BASE_URL, OPENAI_API_KEY and OPENAI_MODEL. TOKEN makes
the agent ask for that bearer token.

Any other ASGI app under a Lambda handler:
  python -m local --task-root my_app --handler main.handler --no-table --no-model
"""

EXAMPLE_BODY = '{"threadId":"t1","runId":"r1","messages":[{"id":"m1","role":"user","content":"Hello"}]}'


def main() -> None:
    parser = _parser()
    options = parser.parse_args()
    # argparse does not check a default that comes from the environment.
    if options.model not in (None, *MODELS):
        parser.error(f"MODEL={options.model} is not one of {', '.join(MODELS)}")
    if options.max_concurrency is not None and options.max_concurrency < 1:
        parser.error("--max-concurrency has to be 1 or more")
    if options.max_concurrency and (options.snap_start or options.freeze):
        parser.error("--max-concurrency means Managed Instances, which know neither --snap-start nor --freeze")
    if options.max_environments < 1:
        parser.error("--max-environments has to be 1 or more")
    options.cors_origin = options.cors_origin or _origins(os.environ.get("CORS_ORIGIN", "")) or list(LOOPBACK)
    for origin in options.cors_origin:
        if not is_origin(origin):
            parser.error(f"{origin} is not an origin (--cors-origin, CORS_ORIGIN): write http://localhost:5173, or *")
    if not options.task_root.is_dir():
        parser.error(f"--task-root {options.task_root} is not a folder")
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("local").setLevel(logging.INFO)
    sys.exit(asyncio.run(run(options)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m local", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    environ = os.environ
    parser.add_argument(
        "--port", type=int, default=environ.get("PORT") or "3000", help="of the function URL (PORT, 3000)"
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(".local"),
        help="folder that keeps the conversations, those of each port apart (.local)",
        metavar="DIR",
    )
    parser.add_argument(
        "--model",
        choices=MODELS,
        default=environ.get("MODEL") or None,
        help="the model to start here (MODEL; demo, or none if OPENAI_API_KEY or OPENAI_BASE_URL is set)",
    )
    parser.add_argument("--timeout", type=float, default=900, help="of an invocation, in seconds (900)", metavar="S")
    parser.add_argument("--init-timeout", type=float, default=10, help="of an INIT, in seconds (10)", metavar="S")
    parser.add_argument("--memory", type=int, default=512, help="told to the function, in MB (512)", metavar="MB")
    parser.add_argument("--snap-start", action="store_true", help="take the function through snapshot and restore")
    parser.add_argument("--freeze", action="store_true", help="stop environments between invocations, as AWS does")
    parser.add_argument(
        "--max-concurrency", type=int, help="Managed Instances: invocations at once in a process", metavar="N"
    )
    parser.add_argument(
        "--max-environments",
        type=int,
        default=10,
        help="environments at once; with all of them busy, a request gets 429 (10)",
        metavar="N",
    )
    parser.add_argument(
        "--cors-origin",
        action="append",
        help="origin whose pages may call, such as https://chat.example.com, or * for any page in your browser; may be "
        "repeated (CORS_ORIGIN, separated by commas; the pages of this machine: http://localhost:* and the like)",
        metavar="ORIGIN",
    )
    parser.add_argument(
        "--source", choices=SOURCES, default="function-url", help="whose events the function gets (function-url)"
    )
    parser.add_argument("--no-reload", action="store_true", help="leave the environments alone when code changes")
    parser.add_argument("--task-root", type=Path, default=AGENT, help="folder of the code", metavar="DIR")
    parser.add_argument("--handler", default="app.handler", help="module.name in it (app.handler)")
    parser.add_argument("--no-table", action="store_true", help="start no DynamoDB table")
    parser.add_argument("--no-model", action="store_true", help="start no model")
    return parser


async def run(options: argparse.Namespace) -> int:
    """Runs until SIGINT, SIGTERM or SIGHUP (the terminal is closed). Returns the exit code."""
    end = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, end.set)
    serving = asyncio.create_task(_serve(options))
    ending = asyncio.create_task(end.wait())
    await asyncio.wait({serving, ending}, return_when=asyncio.FIRST_COMPLETED)
    serving.cancel()
    ending.cancel()
    try:
        await serving
    except asyncio.CancelledError:
        pass  # By the two lines above: asked to end, everything ended.
    except InitError as error:
        return _fail(f"The function cannot be initialised: {error}")
    except ChildFailed as error:
        return _fail(f"Cannot start: {error}")
    except OSError as error:
        return _fail(f"Port {options.port} cannot be used ({error.strerror}): choose another with --port or PORT.")
    return 0


def _origins(listed: str) -> list[str]:
    return [origin.strip() for origin in listed.split(",") if origin.strip()]


def _fail(sentence: str) -> int:
    print(sentence, file=sys.stderr)
    return 1


async def _serve(options: argparse.Namespace) -> None:
    token = os.environ.get("TOKEN") or None
    async with LocalStack(
        port=options.port,
        data=options.data,
        table=not options.no_table,
        model=_model(options),
        token=token,
        handler=options.handler,
        task_root=options.task_root,
        timeout=options.timeout,
        memory=options.memory,
        init_timeout=options.init_timeout,
        max_concurrency=options.max_concurrency,
        snap_start=options.snap_start,
        freeze=options.freeze,
        max_environments=options.max_environments,
        cors=Cors(allow_origins=options.cors_origin),
        source=options.source,
        reload=not options.no_reload,
    ) as stack:
        if options.task_root == AGENT:
            authorization = f" -H {shlex.quote(f'Authorization: Bearer {token}')}" if token else ""
            curl = f"curl -N {stack.url}/ -H 'content-type: application/json'{authorization} -d '{EXAMPLE_BODY}'"
            print(f"\n  Open {stack.url}/ in a browser, or paste into a terminal:\n\n  {curl}\n", flush=True)
        else:
            print(f"\n  The function is at {stack.url}/\n", flush=True)
        await asyncio.Event().wait()


def _model(options: argparse.Namespace) -> str | None:
    if options.no_model:
        return None
    own = os.environ.get("OPENAI_BASE_URL") or os.environ.get("OPENAI_API_KEY")
    return options.model or (None if own else "demo")


if __name__ == "__main__":
    main()
