"""Reading a provider's stream: any framing, any cut, and an error where the answer is not whole."""

import json

import pytest

from agui_lambda.errors import ModelCut, ModelFailed
from agui_lambda.model.chat_completions import ChatCompletionsReader
from agui_lambda.model.deltas import Text, Usage


def frame(**chunk: object) -> bytes:
    return b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n"


def say(text: str) -> bytes:
    return frame(choices=[{"index": 0, "delta": {"content": text}}])


STOP = frame(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}])
DONE = b"data: [DONE]\n\n"


def read(*pieces: bytes) -> list:
    reader = ChatCompletionsReader()
    deltas = [delta for piece in pieces for delta in reader.feed(piece)] + reader.end()
    if reader.failure:
        raise reader.failure
    return deltas


def text(deltas: list) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, Text))


ANSWER = b": hello\n\nid: 1\nevent: message\nretry: 5\n" + say("Grüße ") + b"data:\n\n" + say("😀") + STOP + DONE


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_frames_may_be_cut_anywhere(size, newline):
    body = ANSWER.replace(b"\n", newline)
    assert text(read(*(body[i : i + size] for i in range(0, len(body), size)))) == "Grüße 😀"


def test_what_arrives_together_is_read_together():
    assert ChatCompletionsReader().feed(say("a") + say("b")) == [Text("a"), Text("b")]


@pytest.mark.parametrize(
    "chunk",
    [
        {"choices": []},
        {"choices": [], "prompt_filter_results": [{}]},
        {"choices": None},
        {"choices": [{"index": 0}]},
        {"choices": [{"index": 0, "delta": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": ""}]},
        {
            "choices": [
                {"index": 0, "delta": {"content": None, "role": None, "tool_calls": None}, "finish_reason": None}
            ]
        },
        {"choices": [{"index": 1, "delta": {"content": "another answer"}}]},
        {"error": None, "usage": None, "choices": [{"index": 0, "delta": {"content": ""}}]},
        {"object": "ping"},
    ],
)
def test_chunks_without_text_are_normal(chunk):
    assert text(read(frame(**chunk), say("a"), frame(**chunk), STOP, DONE)) == "a"


def test_content_may_be_a_list_of_parts_and_a_refusal_is_text():
    parts = [{"type": "thinking", "thinking": []}, {"type": "text", "text": "a"}]
    assert text(read(say(parts), STOP)) == "a"
    assert text(read(frame(choices=[{"delta": {"refusal": "no"}}]), STOP)) == "no"


def test_usage_comes_as_the_provider_counts():
    usage = {"prompt_tokens": 3, "completion_tokens": 0, "total_tokens": None}
    assert read(STOP, frame(choices=[], usage=usage), DONE) == [Usage(3, 0, None)]


@pytest.mark.parametrize("ending", [STOP + DONE, STOP, DONE, STOP.rstrip(b"\n")])
def test_an_answer_ends_with_a_finish_reason_or_done(ending):
    assert text(read(say("a"), ending)) == "a"


@pytest.mark.parametrize("body", [b"", say("half"), say("half") + b'data: {"choices"', b": ping\n\n"])
def test_a_body_that_just_ends_is_an_error(body):
    with pytest.raises((ModelCut, ModelFailed)):
        read(body)


@pytest.mark.parametrize(
    "trouble",
    [
        frame(error={"message": "overloaded", "code": 529}),
        frame(error="overloaded"),
        frame(choices=[{"delta": {}, "finish_reason": "error"}]),
        b"data: {bad\n\n",
        b'data: ["no", "object"]\n\n',
        b'event: error\ndata: {"message": "x"}\n\n',
        b"error: overloaded\n\n",
        b'{"error": {"message": "no stream"}}\n',
        b"<html><body>gateway</body></html>",
    ],
)
def test_an_error_inside_the_stream_is_an_error(trouble):
    with pytest.raises(ModelFailed):
        read(say("half"), trouble, STOP, DONE)


@pytest.mark.parametrize(
    "chunk",
    [
        {"choices": "x"},
        {"choices": [1]},
        {"choices": [{"delta": "x"}]},
        {"choices": 5},
    ],
)
def test_a_frame_of_an_unknown_shape_is_a_failure_of_the_model(chunk):
    with pytest.raises(ModelFailed):
        read(say("half"), frame(**chunk), STOP, DONE)


@pytest.mark.parametrize(
    "delta", [{"content": 5}, {"content": {"a": 1}}, {"content": [1, "x", {"type": "text"}]}, {"refusal": 3}]
)
def test_content_that_is_no_text_is_no_text(delta):
    assert text(read(say("a"), frame(choices=[{"delta": delta}]), STOP)) == "a"


@pytest.mark.parametrize("usage", [[1], "x", {"prompt_tokens": "3"}, {"prompt_tokens": -1}, {"prompt_tokens": 1.5}])
def test_usage_that_is_no_count_is_not_reported(usage):
    deltas = read(say("a"), STOP, frame(choices=[], usage=usage))
    assert [delta for delta in deltas if isinstance(delta, Usage)] in ([], [Usage()])


def test_a_line_without_end_is_a_failure_and_not_a_matter_of_minutes():
    reader = ChatCompletionsReader()
    for _ in range(100):
        reader.feed(b"x" * 65_536)
    assert isinstance(reader.failure, ModelFailed)


def test_half_an_emoji_does_not_stop_the_stream():
    assert text(read(b'data: {"choices":[{"delta":{"content":"\\ud83d"}}]}\n\n', STOP)) == "\ud83d"


def test_what_came_before_an_error_in_the_same_read_is_kept():
    reader = ChatCompletionsReader()
    assert reader.feed(say("half") + frame(error="overloaded")) == [Text("half")]
    assert isinstance(reader.failure, ModelFailed)
