"""The order of events, and that the fast way to write them means the same as the protocol package's own."""

import json

import pytest
from ag_ui.core import (
    RunErrorEvent,
    RunStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
)
from ag_ui.encoder import EventEncoder

from agui_lambda.events.sse import SSEEncoder
from agui_lambda.events.stream import EventStream


@pytest.fixture
def stream() -> EventStream:
    return EventStream(SSEEncoder(), "t", "r")


def events(frames: bytes) -> list[dict]:
    return [json.loads(frame.removeprefix("data: ")) for frame in frames.decode().split("\n\n") if frame]


def kinds(frames: bytes) -> list[str]:
    return [event["type"] for event in events(frames)]


def test_a_message_opens_with_its_first_text_and_closes_before_the_end(stream):
    assert kinds(stream.text("m", "a")) == ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT"]
    assert kinds(stream.text("m", "b")) == ["TEXT_MESSAGE_CONTENT"]
    assert kinds(stream.finished()) == ["TEXT_MESSAGE_END", "RUN_FINISHED"]
    assert stream.ended


def test_empty_text_opens_nothing(stream):
    assert stream.text("m", "") == b""
    assert stream.close() == b""


def test_text_of_another_message_closes_the_open_one(stream):
    stream.text("m1", "a")
    frames = events(stream.text("m2", "b"))
    assert [(event["type"], event["messageId"]) for event in frames] == [
        ("TEXT_MESSAGE_END", "m1"),
        ("TEXT_MESSAGE_START", "m2"),
        ("TEXT_MESSAGE_CONTENT", "m2"),
    ]


def test_a_failure_closes_what_is_open_too(stream):
    stream.text("m", "a")
    assert kinds(stream.failed("CODE", "sentence")) == ["TEXT_MESSAGE_END", "RUN_ERROR"]


def test_there_is_one_terminal_event(stream):
    stream.finished()
    with pytest.raises(AssertionError):
        stream.failed("CODE", "sentence")


def test_members_without_a_value_are_left_out(stream):
    assert events(stream.started()) == [
        {"type": "RUN_STARTED", "threadId": "t", "runId": "r", "protocolVersion": "1.0"}
    ]
    assert events(stream.started("p"))[0]["parentRunId"] == "p"
    assert "usage" not in events(stream.finished())[0]


@pytest.mark.parametrize(
    "delta",
    [
        "plain",
        'quotes " and \\ back',
        "line\nfeed\r\n\ttab",
        "\x00\x1f\x7f",
        "U+2028 \u2028 \u2029",
        "é 漢字 العربية",
        "😀👩‍👩‍👧",
        "</script>",
        " ",
    ],
)
def test_frames_mean_what_the_protocol_package_would_write(stream, delta):
    frames = stream.started() + stream.text("m-1", delta) + stream.failed("C", "s")
    encoder = EventEncoder()
    theirs = "".join(
        encoder.encode(event)
        for event in (
            RunStartedEvent(thread_id="t", run_id="r", protocol_version="1.0"),
            TextMessageStartEvent(message_id="m-1", role="assistant"),
            TextMessageContentEvent(message_id="m-1", delta=delta),
            TextMessageEndEvent(message_id="m-1"),
            RunErrorEvent(message="s", code="C"),
        )
    )
    assert events(frames) == events(theirs.encode())


def test_an_emoji_that_a_provider_cut_in_two_is_whole_again_at_the_client(stream):
    deltas = [
        event["delta"] for event in events(stream.text("m", "\ud83d") + stream.text("m", "\ude00")) if "delta" in event
    ]
    # As a JavaScript client joins them: UTF-16 code units.
    assert "".join(deltas).encode("utf-16-le", "surrogatepass").decode("utf-16-le") == "😀"
