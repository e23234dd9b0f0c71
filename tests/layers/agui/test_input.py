"""Reading a RunAgentInput: what is refused with which words, and what only loses its unknown parts."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from agui_lambda.errors import RequestError
from agui_lambda.events.input import read_input

MINIMAL: dict[str, Any] = {"threadId": "t", "runId": "r", "messages": []}


def read(**members: Any) -> Any:
    return read_input(json.dumps({**MINIMAL, **members}).encode())


def refusal(body: bytes) -> RequestError:
    with pytest.raises(RequestError) as caught:
        read_input(body)
    return caught.value


def test_three_members_are_enough():
    run = read()
    assert (run.thread_id, run.run_id, run.messages) == ("t", "r", [])
    assert run.tools == run.context == run.resume == []
    assert run.protocol_version is None


@pytest.mark.parametrize("member", ["state", "tools", "context", "forwardedProps", "resume", "parentRunId"])
def test_null_reads_as_absent(member):
    assert read(**{member: None}) == read()


NOT_JSON = [b"", b"{", b"not json", b"\xff\xfe", b"[" * 100_000, b"1" * 10_000, '{"a": 1}'.encode("utf-16")]
NOT_JSON += [b'{"a": NaN}', b'{"a": Infinity}', b'{"a": 1e999}']


@pytest.mark.parametrize("body", NOT_JSON)
def test_what_is_not_json_is_a_400(body):
    refused = refusal(body)
    assert (refused.status, refused.code) == (400, "INVALID_JSON")


@pytest.mark.parametrize("body", [b"[]", b'"hi"', b"null", b"3"])
def test_json_that_is_no_object_is_a_422(body):
    assert refusal(body).status == 422


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"threadId": 5}, "threadId"),
        ({"runId": None}, "runId"),
        ({"messages": "hi"}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": [{"id": "m", "role": "user", "content": 5}]}, "messages.0.content"),
        ({"messages": [{"id": "m", "role": "user"}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": "x"}]}, "messages.0.id"),
        ({"messages": ["hi"]}, "messages.0"),
        ({"messages": [None]}, "messages.0"),
        ({"messages": [{"id": "m", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"id": "m", "role": "user", "content": [5]}]}, "messages.0.content.0"),
        ({"tools": {}}, "tools"),
        (
            {"messages": [{"id": "a", "role": "user", "content": "x"}, {"id": 7, "role": "user", "content": "x"}]},
            "messages.1.id",
        ),
        (
            {"messages": [{"id": "m", "role": "user", "content": [{"type": "text", "text": 5}]}]},
            "messages.0.content.0.text",
        ),
        ({"context": [{"description": "d"}]}, "context.0.value"),
        ({"tools": [{"name": "t"}]}, "tools.0.description"),
        ({"resume": [{"interruptId": "i", "status": "maybe"}]}, "resume.0.status"),
        (
            {"messages": [{"id": "m", "role": "user", "content": [{"type": "image", "source": {"type": "ftp"}}]}]},
            "messages.0.content.0.source",
        ),
    ],
)
def test_a_known_member_of_the_wrong_shape_is_named(change, field):
    refused = refusal(json.dumps({**MINIMAL, **change}).encode())
    assert (refused.status, refused.code, refused.field) == (422, "INVALID_INPUT", field)
    assert refused.body()["field"] == field


def test_unknown_members_roles_and_parts_are_stripped_with_a_log_line(caplog):
    run = read(
        futureThing={},
        messages=[
            {"id": "1", "role": "hologram", "content": "?"},
            {
                "id": "2",
                "role": "user",
                "mood": "good",
                "content": [{"type": "smell"}, {"type": "text", "text": "hi", "font": 1}],
            },
        ],
    )
    assert run.messages == [{"id": "2", "role": "user", "content": [{"type": "text", "text": "hi"}]}]
    for unknown in ("futureThing", "hologram", "mood", "smell"):
        assert unknown in caplog.text


def test_every_role_of_the_protocol_is_taken():
    messages = [
        {"id": "1", "role": "system", "content": "s"},
        {"id": "2", "role": "developer", "content": "d"},
        {"id": "3", "role": "user", "content": "u"},
        {
            "id": "4",
            "role": "assistant",
            "toolCalls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{"}}],
        },
        {"id": "5", "role": "tool", "toolCallId": "c", "content": "r"},
        {"id": "6", "role": "reasoning", "content": "hm"},
        {"id": "7", "role": "activity", "activityType": "plan", "content": {}},
    ]
    assert read(messages=messages).messages == messages


def test_an_assistant_message_may_have_no_content():
    for content in ({"content": None}, {"content": ""}, {}):
        assert read(messages=[{"id": "a", "role": "assistant", **content}]).messages[0]["role"] == "assistant"


@pytest.mark.parametrize(
    ("binary", "part"),
    [
        (
            {"mimeType": "image/png", "data": "aGk="},
            {"type": "image", "source": {"mimeType": "image/png", "type": "data", "value": "aGk="}},
        ),
        (
            {"mimeType": "audio/wav", "url": "https://a/b"},
            {"type": "audio", "source": {"mimeType": "audio/wav", "type": "url", "value": "https://a/b"}},
        ),
        (
            {"mimeType": "application/pdf", "id": "f1"},
            {"type": "document", "source": {"mimeType": "application/pdf", "type": "file", "value": "f1"}},
        ),
    ],
)
def test_the_deprecated_binary_part_becomes_the_one_that_replaced_it(binary, part):
    message = {"id": "m", "role": "user", "content": [{"type": "binary", **binary}]}
    assert read(messages=[message]).messages[0]["content"] == [part]


def test_what_current_front_ends_send_is_taken():
    """CopilotKit and assistant-ui: null state, empty assistant content, short ids, no resume, no protocolVersion."""
    run = read(
        runId="abc",
        state=None,
        tools=[],
        context=[],
        forwardedProps={},
        messages=[
            {"id": "call_x:tool", "role": "tool", "toolCallId": "call_x", "content": "{}"},
            {"id": "a", "role": "assistant", "content": ""},
        ],
    )
    assert run.run_id == "abc"


CONFORMANCE = json.loads((Path(__file__).parents[2] / "fixtures" / "run-agent-input.json").read_text())["cases"]
# The schema is closed, the processing rules are not: these lose what is unknown, or old, and run.
STRIPPED = {
    "UserMessage/legacy-binary-part",
    "UserMessage/part-shaped-like-media-with-unknown-type",
    "ToolMessage/content-part-unknown-type",
    "FileSource/reference-record",
}


@pytest.mark.parametrize("case", CONFORMANCE, ids=lambda case: case["name"])
def test_the_protocols_conformance_documents(case):
    body = json.dumps(case["input"]).encode()
    if case["valid"] or case["name"] in STRIPPED:
        assert read_input(body).thread_id
    else:
        assert refusal(body).status == 422


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"messages": [1] * 1_000_000}, "messages"),
        ({"messages": [{}] * 10_000}, "messages.0.role"),
        ({"messages": [{"id": "m", "role": "user", "content": [{"type": "text"}] * 500_000}]}, "messages.0.content"),
        ({"tools": [{}] * 500_000}, "tools"),
        ({"context": [1] * 1_000}, "context.0"),
    ],
)
def test_a_million_mistakes_are_refused_at_the_first(change, field):
    """Told one by one by the protocol's models they would take gigabytes."""
    tracemalloc.start()
    refused = refusal(json.dumps({**MINIMAL, **change}).encode())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (refused.status, refused.field) == (422, field)
    assert peak < 300_000_000


def test_the_log_has_one_line_however_much_is_unknown(caplog):
    read(
        **{f"member{n}": 1 for n in range(1_000)},
        **{"x" * 1_000_000: 1},
        messages=[{"id": str(n), "role": f"role{n}", "content": "x"} for n in range(1_000)],
    )
    [record] = caplog.records
    assert len(record.getMessage()) < 2_000
