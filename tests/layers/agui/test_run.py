"""Whole runs over HTTP: the stream a front end gets, what the model is asked, and what is kept."""

import asyncio

import pytest

from agui_lambda import Agent
from tests.agent_server import agent_server, assistant, user
from tests.model_server import fin, raw, say, wait_for

pytestmark = pytest.mark.anyio


# --- the stream ---------------------------------------------------------------------------------------------


async def test_an_answer_is_a_whole_run(served):
    served.model.reply(say("Hel", "lo"), fin(usage={"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}))
    answer = await served.run(user("hi"))
    start, *_, end = answer.events
    assert answer.types == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    assert start == {"type": "RUN_STARTED", "threadId": "t1", "runId": "r1", "protocolVersion": "1.0"}
    assert end == {
        "type": "RUN_FINISHED",
        "threadId": "t1",
        "runId": "r1",
        "outcome": {"type": "success"},
        "usage": [{"model": "test-model", "inputTokens": 3, "outputTokens": 2, "totalTokens": 5}],
    }
    assert answer.text == "Hello"


async def test_the_run_starts_before_the_table_or_the_model_is_touched(served):
    gate = asyncio.Event()
    served.model.reply(wait_for(gate), say("a"), fin())
    async with served.session.post(served.url, json=served.input(user("hi"))) as response:
        first = await response.content.readuntil(b"\n\n")
        assert b"RUN_STARTED" in first
        gate.set()
        assert b"RUN_FINISHED" in await response.read()


async def test_each_token_leaves_when_it_arrives(served):
    gates = [asyncio.Event() for _ in range(20)]
    served.model.reply(*(step for gate in gates for step in (wait_for(gate), say("token "))), fin())
    async with served.session.post(served.url, json=served.input(user("hi"))) as response:
        await response.content.readuntil(b"\n\n")
        for n, gate in enumerate(gates):
            gate.set()
            frame = await response.content.readuntil(b"\n\n")
            if n == 0:
                assert b"TEXT_MESSAGE_START" in frame
                frame = await response.content.readuntil(b"\n\n")
            assert b'"delta":"token "' in frame


async def test_bytes_are_what_the_strictest_parser_takes(served):
    text = 'emoji 😀 combining é العربية "quotes" \\ \t \r\n \u2028 end'
    served.model.reply(say(*text), fin())
    answer = await served.run(user("hi"))
    assert answer.text == text
    assert b"\r" not in answer.body
    assert b"null" not in answer.body
    assert b"[DONE]" not in answer.body
    answer.body.decode("ascii")
    assert not any("_" in name for event in answer.events for name in event)


async def test_half_an_emoji_from_either_side_harms_no_later_turn(served):
    served.model.reply(raw(b'data: {"choices":[{"delta":{"content":"b\\ud83d"}}]}\n\n'), fin())
    first = await served.run(user("a\ud83d", "1"))
    assert first.types[-1] == "RUN_FINISHED"
    served.model.reply(say("ok"), fin())
    assert (await served.run(user("again", "2"))).text == "ok"
    assert served.last_request == [("user", "a\ufffd"), ("assistant", "b\ufffd"), ("user", "again")]


async def test_a_new_thread_without_a_message_has_nothing_to_answer(served):
    assert (await served.run()).types == ["RUN_STARTED", "RUN_FINISHED"]
    assert served.model.saw == []


async def test_an_empty_answer_is_a_run_without_a_message(served):
    served.model.reply(fin())
    assert (await served.run(user("hi"))).types == ["RUN_STARTED", "RUN_FINISHED"]


async def test_a_client_older_than_1_0_gets_the_same_run(served):
    served.model.otherwise(say("a"), fin())
    old = await served.run(user("hi"), state={}, tools=[], context=[], forwardedProps={})
    new = await served.run(user("hi", "2"), protocolVersion="1.0")
    assert old.types == new.types


# --- what the model is asked --------------------------------------------------------------------------------


async def test_the_request_is_what_a_provider_expects():
    agent = Agent(name="a", instructions="Be brief.", model="m-1", model_options={"temperature": 0.2})
    async with agent_server(agent) as served:
        served.model.reply(say("Hi"), fin())
        await served.run(
            {"id": "s", "role": "system", "content": "sys"},
            {"id": "d", "role": "developer", "content": "dev"},
            user("hello"),
        )
    request = served.model.requests[0]
    assert request.body == {
        "model": "m-1",
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.2,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "system", "content": "sys"},
            {"role": "system", "content": "dev"},
            {"role": "user", "content": "hello"},
        ],
    }
    assert request.headers["authorization"] == "Bearer test-key"


async def test_context_and_state_reach_the_model_as_data(served):
    served.model.reply(say("Hi"), fin())
    await served.run(user("who am I?"), context=[{"description": "the user's name", "value": "Bob"}], state={"page": 7})
    (role, shared), question = served.last_request
    assert role == "system"
    assert "Bob" in shared
    assert '"page": 7' in shared
    assert question == ("user", "who am I?")


async def test_what_the_model_cannot_use_does_not_stop_the_run(served, caplog):
    served.model.reply(say("Hi"), fin())
    answer = await served.run(
        {"id": "1", "role": "reasoning", "content": "hm"},
        {"id": "2", "role": "activity", "activityType": "x", "content": {}},
        {"id": "3", "role": "hologram"},
        {"id": "4", "role": "assistant", "content": None},
        user(
            [{"type": "text", "text": "look"}, {"type": "image", "source": {"type": "url", "value": "https://x/y"}}],
            "5",
        ),
    )
    assert answer.types[-1] == "RUN_FINISHED"
    assert served.last_request == [("user", "look")]


# --- memory -------------------------------------------------------------------------------------------------


async def test_three_turns_with_the_whole_history_each_time(served):
    history = []
    for n in range(3):
        history.append(user(f"q{n}"))
        served.model.reply(say(f"a{n}"), fin())
        answer = await served.run(*history)
        history.append(assistant(answer.text, answer.events[1]["messageId"]))
    assert served.last_request == [
        ("user", "q0"),
        ("assistant", "a0"),
        ("user", "q1"),
        ("assistant", "a1"),
        ("user", "q2"),
    ]


async def test_new_only_and_trimmed_tail_give_the_model_the_same_conversation(served):
    served.model.otherwise(say("a"), fin())
    await served.run(user("q0"))
    answer = await served.run(user("q1"))
    await served.run(assistant("a", answer.events[1]["messageId"]), user("q2"))
    expected = [("user", "q0"), ("assistant", "a"), ("user", "q1"), ("assistant", "a"), ("user", "q2")]
    assert served.last_request == expected


async def test_an_edited_question_replaces_what_came_after_it(served):
    served.model.otherwise(say("a"), fin())
    await served.run(user("q0"))
    await served.run(user("q0, better", "m-q0"))
    assert served.last_request == [("user", "q0, better")]


async def test_a_second_run_on_a_thread_gets_a_clear_error_and_mixes_nothing(served):
    gate, asked = asyncio.Event(), asyncio.Event()
    served.model.reply(wait_for(gate, asked), say("first"), fin())
    first = asyncio.create_task(served.run(user("q1")))
    await asked.wait()
    second = await served.run(user("q2"))
    assert second.types == ["RUN_STARTED", "RUN_ERROR"]
    assert second.events[-1]["code"] == "THREAD_BUSY"
    gate.set()
    assert (await first).text == "first"
    assert await served.kept() == [("user", "q1"), ("assistant", "first")]


async def test_other_threads_are_not_held_up(served):
    gate, asked = asyncio.Event(), asyncio.Event()
    served.model.reply(wait_for(gate, asked), say("slow"), fin())
    slow = asyncio.create_task(served.run(user("q"), thread="slow"))
    await asked.wait()
    served.model.reply(say("quick"), fin())
    assert (await served.run(user("q"), thread="quick")).text == "quick"
    gate.set()
    await slow


async def test_an_agent_can_say_whose_history_counts():
    agents = {"/client": Agent(name="c", history="client"), "/server": Agent(name="s", history="server")}
    async with agent_server(agents) as served:
        served.model.otherwise(say("a"), fin())
        for path, expected in (("/client", ["q1"]), ("/server", ["q0", "a", "q1"])):
            await served.post(served.input(user("q0")), path)
            await served.post(served.input(user("q1")), path)
            assert [content for _, content in served.last_request] == expected
