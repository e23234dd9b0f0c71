"""A scripted model behind an OpenAI-compatible address: `python -m local.demo_model`.

Responsible for looking like a real one from outside: Chat Completions in OpenAI's shapes, streamed or whole, a delay
per token, usage, errors. Not responsible for being clever: what it says comes from the table REPLIES below, and it
tells so. It keeps nothing between requests; whatever it remembers was in the request's messages.
"""

import argparse
import asyncio
import itertools
import json
import re
import secrets
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from local.child import serve_child

# --- what it says -------------------------------------------------------------------------------------------

INTRODUCTION = "I am a scripted demo model, not a real one. "


@dataclass
class Conversation:
    """The texts of the user's messages, oldest first; the last one is to be answered (it may be empty)."""

    said: list[str]


def hello(talk: Conversation, match: re.Match[str]) -> Iterator[str]:
    yield "Hello! Your words came all the way through the agent to me, and these words go back one by one. "
    yield "Ask me “what can you do?”, or tell me something and ask later what you said."


def abilities(talk: Conversation, match: re.Match[str]) -> Iterator[str]:
    yield "I follow a short script:\n\n"
    yield "- **hello**: a greeting\n"
    yield "- **count to 20**: a stream you can watch\n"
    yield "- **write a long answer**: several paragraphs of Markdown\n"
    yield "- **what did I say?**, **what did I say first?**: proof that the thread is kept\n"
    yield "- **what time is it?**: when exactly I sent the answer\n\n"
    yield "To anything else I answer with an echo. For a real model set `OPENAI_BASE_URL` and `OPENAI_API_KEY`."


def count(talk: Conversation, match: re.Match[str]) -> Iterator[str]:
    last = min(int(match["last"]), 10_000)
    return (f"{number}{' ' if number < last else '.'}" for number in range(1, last + 1))


def long_answer(talk: Conversation, match: re.Match[str]) -> Iterator[str]:
    yield "# A long answer\n\n"
    for number, topic in enumerate(("function URL", "runtime", "agent", "model", "thread"), start=1):
        yield f"## {number}. The {topic}\n\n"
        yield f"This paragraph is about the {topic}, or would be if I knew anything. I only fill the page, so that "
        yield "you can see how text *grows*, how **bold** words look, and whether the page scrolls along. "
        yield "Stop me at any moment, and look at what is kept.\n\n"
    yield "```python\nfor token in answer:\n    print(token, end='', flush=True)\n```\n\n"
    yield "That is the end of the long answer."


def recall_first(talk: Conversation, match: re.Match[str]) -> Iterator[str]:
    if len(talk.said) == 1:
        yield "This is the first thing you have said in this thread."
    else:
        yield f"The first thing you said was: “{talk.said[0]}”."


def recall_all(talk: Conversation, match: re.Match[str]) -> Iterator[str]:
    *earlier, _ = talk.said
    if not earlier:
        yield "Nothing before this question, as far as this thread goes."
    else:
        yield f"Before this question you said {_messages(len(earlier))}:\n\n"
        yield from (f"{number}. “{text}”\n" for number, text in enumerate(earlier, start=1))


def the_time(talk: Conversation, match: re.Match[str]) -> Iterator[str]:
    # Read when this word is due, so that a watch at the far end shows how long a word travels.
    yield datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z") + " "
    yield "is when I sent the first word of this sentence."


def echo(talk: Conversation, match: re.Match[str]) -> Iterator[str]:
    *earlier, now = talk.said
    yield f"You said: “{now}”. " if now else "You sent me no text. "
    if earlier:
        yield f"That is message {len(talk.said)} of yours in this thread; the one before was: “{earlier[-1]}”."
    else:
        yield "That is your first message in this thread. Say something more, then ask what you said first."


Reply = Callable[[Conversation, re.Match[str]], Iterator[str]]

# The first pattern found in the user's last message decides. Case does not matter.
REPLIES: list[tuple[str, Reply]] = [
    (r"what did i (say|write|tell you) first|my first message", recall_first),
    (r"what (did|have) i (say|said|write|written|tell|told)|repeat everything|how many messages", recall_all),
    (r"what can you do|^help\b", abilities),
    (r"count to (?P<last>\d{1,6})", count),
    (r"long (answer|text|story|reply)", long_answer),
    (r"what time is it", the_time),
    (r"^(hello|hi|hey|good (morning|evening|day))\b", hello),
    (r"", echo),
]


def answer(talk: Conversation) -> Iterator[str]:
    """The tokens of the answer: words with the space behind them, made one by one as they are asked for."""
    if len(talk.said) == 1:
        yield from _tokens(INTRODUCTION)
    for pattern, reply in REPLIES:
        if match := re.search(pattern, talk.said[-1].strip(), re.IGNORECASE):
            for text in reply(talk, match):
                yield from _tokens(text)
            return


def _tokens(text: str) -> list[str]:
    return re.findall(r"\s*\S+\s*|\s+", text)


def _messages(number: int) -> str:
    return "one message" if number == 1 else f"{number} messages"


# --- what it reads ------------------------------------------------------------------------------------------


class BadRequest(Exception):
    """The request is not one that OpenAI would take; `param` names the field."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


@dataclass
class Ask:
    """A Chat Completions request, as far as a script needs it. `limit` is the greatest number of tokens wanted."""

    model: str
    talk: Conversation
    prompt_tokens: int
    limit: int | None
    stream: bool
    include_usage: bool


def read(body: bytes) -> Ask:
    """Raises BadRequest."""
    try:
        data = json.loads(body)
    except ValueError:
        raise BadRequest("We could not parse the JSON body of your request.") from None
    if not isinstance(data, dict):
        raise BadRequest("The body of the request must be a JSON object.")
    if not isinstance(data.get("model"), str) or not data["model"]:
        raise BadRequest("you must provide a model parameter", "model")
    messages = data.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("'messages' must be an array with at least one message.", "messages")
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise BadRequest("A message must be an object with a role.", f"messages[{index}]")
    limit = data.get("max_completion_tokens") or data.get("max_tokens")
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise BadRequest("The token limit must be a positive integer.", "max_completion_tokens")
    options = data.get("stream_options") or {}
    texts = [_text(message.get("content"), index) for index, message in enumerate(messages)]
    said = [text for text, message in zip(texts, messages, strict=True) if message["role"] == "user"]
    return Ask(
        model=data["model"],
        talk=Conversation(said or [""]),
        prompt_tokens=sum(len(_tokens(text)) for text in texts),
        limit=limit,
        stream=bool(data.get("stream")),
        include_usage=isinstance(options, dict) and bool(options.get("include_usage")),
    )


def _text(content: Any, index: int) -> str:
    match content:
        case None:
            return ""
        case str():
            return content
        case list():
            return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    raise BadRequest("The content of a message must be a string or an array of parts.", f"messages[{index}].content")


# --- how it answers -----------------------------------------------------------------------------------------


class DemoModel:
    """The HTTP side. `token_delay` is in milliseconds; the first token takes ten times as long, like a real one's."""

    def __init__(self, token_delay: float = 30) -> None:
        self.token_delay = token_delay / 1000
        self.app = Starlette(
            routes=[
                Route("/v1/chat/completions", self.chat_completions, methods=["POST"]),
                Route("/v1/models", self.models, methods=["GET"]),
            ],
            exception_handlers={HTTPException: _http_error, BadRequest: _bad_request, ClientDisconnect: _nobody},
        )

    async def models(self, request: Request) -> Response:
        model = {"id": "demo", "object": "model", "created": 1767225600, "owned_by": "local"}
        return JSONResponse({"object": "list", "data": [model]})

    async def chat_completions(self, request: Request) -> Response:
        ask = read(await request.body())
        head = {"id": f"chatcmpl-{secrets.token_urlsafe(21)}", "created": int(time.time()), "model": ask.model}
        if ask.stream:
            return StreamingResponse(
                self._stream(ask, head), media_type="text/event-stream", headers={"cache-control": "no-cache"}
            )
        tokens = [token async for token in self._paced(ask)]
        whole: dict[str, Any] = {
            "message": {"role": "assistant", "content": "".join(tokens), "refusal": None, "annotations": []},
            "logprobs": None,
            "finish_reason": _finish_reason(ask, len(tokens)),
        }
        more = {"usage": _usage(ask, len(tokens)), "system_fingerprint": None}
        return JSONResponse(head | {"object": "chat.completion", "choices": [{"index": 0} | whole]} | more)

    async def _paced(self, ask: Ask) -> AsyncIterator[str]:
        if self.token_delay:
            await asyncio.sleep(self.token_delay * 9)
        for token in itertools.islice(answer(ask.talk), ask.limit):
            yield token
            if self.token_delay:
                await asyncio.sleep(self.token_delay)

    async def _stream(self, ask: Ask, head: dict[str, Any]) -> AsyncIterator[bytes]:
        head |= {"object": "chat.completion.chunk", "system_fingerprint": None}
        # OpenAI puts `"usage": null` into every chunk before the last when usage is asked for.
        extra: dict[str, Any] = {"usage": None} if ask.include_usage else {}

        def chunk(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
            return _frame(head | {"choices": [choice]} | extra)

        count = 0
        yield chunk({"role": "assistant", "content": "", "refusal": None})
        async for token in self._paced(ask):
            count += 1
            yield chunk({"content": token})
        yield chunk({}, _finish_reason(ask, count))
        if ask.include_usage:
            yield _frame(head | {"choices": [], "usage": _usage(ask, count)})
        yield b"data: [DONE]\n\n"


def _frame(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def _finish_reason(ask: Ask, count: int) -> str:
    return "length" if count == ask.limit else "stop"


def _usage(ask: Ask, count: int) -> dict[str, int]:
    return {
        "prompt_tokens": ask.prompt_tokens,
        "completion_tokens": count,
        "total_tokens": ask.prompt_tokens + count,
    }


def _error(status: int, message: str, param: str | None = None) -> Response:
    detail = {"message": message, "type": "invalid_request_error", "param": param, "code": None}
    return JSONResponse({"error": detail}, status)


async def _bad_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, BadRequest)
    return _error(400, str(error), error.param)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(error.status_code, f"{error.detail}: {request.method} {request.url.path}")


async def _nobody(request: Request, error: Exception) -> Response:
    return Response(status_code=499)  # the client left while sending; nobody reads this


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m local.demo_model", description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 takes a free one")
    parser.add_argument(
        "--token-delay", type=float, default=30, help="milliseconds per token (default: 30); 0 is as fast as possible"
    )
    arguments = parser.parse_args()
    try:
        asyncio.run(serve_child(DemoModel(arguments.token_delay).app, arguments.port))
    except OSError as error:
        sys.exit(f"demo model: {error}")


if __name__ == "__main__":
    main()
