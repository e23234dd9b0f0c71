"""Whole runs over HTTP: the stream a front end gets, what the model is asked, and what is kept."""

import asyncio

import boto3
import pytest

from agui_lambda import Agent
from tests.agent_server import AgentServer, agent_server, assistant, user
from tests.model_server import chunk, cut, fin, hang, http, raw, say, wait_for, wire

pytestmark = pytest.mark.anyio


@pytest.fixture
async def served():
    async with agent_server(Agent(name="assistant", model_timeout=0.3)) as served:
        yield served


async def kept(served: AgentServer, thread: str = "t1") -> list[tuple[str, str]]:
    """The thread as the next turn's model sees it."""
    served.model.reply(say("ok"), fin())
    await served.run(user("and now?", "probe"), thread=thread)
    return served.last_request[:-1]


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
    assert await kept(served) == [("user", "q1"), ("assistant", "first")]


async def test_other_threads_are_not_held_up(served):
    gate, asked = asyncio.Event(), asyncio.Event()
    served.model.reply(wait_for(gate, asked), say("slow"), fin())
    slow = asyncio.create_task(served.run(user("q"), thread="slow"))
    await asked.wait()
    served.model.reply(say("quick"), fin())
    assert (await served.run(user("q"), thread="quick")).text == "quick"
    gate.set()
    await slow


# --- trouble ------------------------------------------------------------------------------------------------

TROUBLE = {
    "refuses the key": ((http(401, {"error": {"message": "bad key sk-live-1"}}),), "MODEL_UNAUTHORIZED"),
    "refuses the request": ((http(400, {"error": {"message": "maximum context sk-live-1"}}),), "MODEL_REFUSED"),
    "does not know the model": ((http(404, {"error": {"message": "no gpt-9 sk-live-1"}}),), "MODEL_NOT_FOUND"),
    "wants a minute": ((http(429, {"error": "sk-live-1"}, {"retry-after": "50"}),), "MODEL_RATE_LIMITED"),
    "limits the rate": ((http(429, {"error": "sk-live-1"}, {"x-should-retry": "false"}),), "MODEL_RATE_LIMITED"),
    "fails": ((http(500, "sk-live-1", {"x-should-retry": "false"}),), "MODEL_ERROR"),
    "answers a web page": ((http(200, "<html>sk-live-1</html>"),), "MODEL_ERROR"),
    "answers JSON": ((http(200, {"choices": [{"message": {"content": "x"}}]}),), "MODEL_ERROR"),
    "answers nothing": ((http(200, b"", {"content-type": "text/event-stream"}),), "MODEL_STREAM_CUT"),
    "answers something else than HTTP": ((wire(b"SSH-2.0 hello\r\n\r\n"),), "MODEL_UNREACHABLE"),
    "is silent": ((hang,), "MODEL_TIMEOUT"),
    "cut in the middle": ((say("half"), cut), "MODEL_STREAM_CUT"),
    "ends in the middle": ((say("half"),), "MODEL_STREAM_CUT"),
    "is silent in the middle": ((say("half"), hang), "MODEL_TIMEOUT"),
    "fails in the middle": ((say("half"), chunk(error={"message": "sk-live-1"})), "MODEL_ERROR"),
    "sends nonsense in the middle": ((say("half"), raw(b"data: {bad sk-live-1\n\n")), "MODEL_ERROR"),
}


@pytest.mark.parametrize("trouble", TROUBLE)
async def test_a_model_that(served, trouble):
    """…ends the run with a stable code after everything open is closed; what was streamed is kept, no detail leaks."""
    steps, code = TROUBLE[trouble]
    served.model.reply(*steps)
    answer = await served.run(user("q"))
    half = "half" if "in the middle" in trouble else ""
    opened = ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"] if half else []
    assert answer.types == ["RUN_STARTED", *opened, "RUN_ERROR"]
    assert answer.events[-1]["code"] == code
    assert answer.text == half
    assert b"sk-live" not in answer.body
    assert await kept(served) == [("user", "q")] + ([("assistant", half)] if half else [])


async def test_a_model_that_cannot_be_reached(unused_port):
    async with agent_server(OPENAI_BASE_URL=f"http://127.0.0.1:{unused_port}/v1") as served:
        answer = await served.run(user("q"))
    assert answer.events[-1]["code"] == "MODEL_UNREACHABLE"


async def test_an_agent_without_a_key_says_so():
    async with agent_server(OPENAI_API_KEY="") as served:
        answer = await served.run(user("q"))
    assert answer.events[-1]["code"] == "MODEL_UNAUTHORIZED"


async def test_a_key_that_was_not_put_into_its_secret_yet_is_looked_for_again():
    async with agent_server(OPENAI_API_KEY=None, OPENAI_API_KEY_SECRET="model-key") as served:
        answer = await served.run(user("q"))
        assert answer.events[-1]["code"] == "MODEL_UNAUTHORIZED"
        secrets = boto3.client("secretsmanager", region_name="us-east-1")
        secrets.create_secret(Name="model-key", SecretString="from-aws")
        served.model.reply(say("a"), fin())
        assert (await served.run(user("again", "2"))).text == "a"
    assert served.model.requests[0].headers["authorization"] == "Bearer from-aws"


async def test_a_key_that_is_refused_is_fetched_anew():
    async with agent_server(OPENAI_API_KEY=None, OPENAI_API_KEY_SECRET="model-key") as served:
        secrets = boto3.client("secretsmanager", region_name="us-east-1")
        secrets.create_secret(Name="model-key", SecretString="wrong")
        served.model.reply(http(401, {"error": {"message": "no"}}))
        assert (await served.run(user("q"))).events[-1]["code"] == "MODEL_UNAUTHORIZED"
        secrets.put_secret_value(SecretId="model-key", SecretString="right\n")
        served.model.reply(say("a"), fin())
        assert (await served.run(user("again", "2"))).text == "a"
    assert served.model.requests[-1].headers["authorization"] == "Bearer right"


async def test_a_model_of_ones_own_needs_no_key():
    async with agent_server(OPENAI_API_KEY=None) as served:
        served.model.reply(say("a"), fin())
        assert (await served.run(user("q"))).text == "a"


async def test_a_provider_that_lingers_after_its_answer_does_not_hold_up_the_end(served):
    served.model.reply(say("a"), fin(), hang)
    answer = await served.run(user("q"))
    assert answer.types[-1] == "RUN_FINISHED"
    assert answer.arrivals[-1][0] < 5


async def test_a_provider_that_fails_at_first_is_asked_again(served):
    served.model.reply(http(503, "busy", {"retry-after-ms": "1"}))
    served.model.reply(say("a"), fin())
    answer = await served.run(user("q"))
    assert answer.text == "a"
    assert len(served.model.saw) == 2


async def test_an_answer_that_began_is_never_asked_for_again(served):
    served.model.reply(say("a"), cut)
    await served.run(user("q"))
    assert len(served.model.saw) == 1


async def test_a_thread_that_cannot_be_loaded_is_an_error_in_the_stream():
    async with agent_server(TABLE_NAME="not-there") as served:
        answer = await served.run(user("q"))
    assert answer.types == ["RUN_STARTED", "RUN_ERROR"]
    assert answer.events[-1]["code"] == "THREAD_UNAVAILABLE"
    assert b"not-there" not in answer.body
    assert served.model.saw == []


async def test_an_answer_that_cannot_be_kept_is_streamed_and_ends_in_an_error(served):
    gate, said = asyncio.Event(), asyncio.Event()
    served.model.reply(say("a"), wait_for(gate, said), fin())
    running = asyncio.create_task(served.run(user("q")))
    await said.wait()
    boto3.client("dynamodb", region_name="us-east-1").delete_table(TableName="threads")
    gate.set()
    answer = await running
    assert answer.text == "a"
    assert answer.events[-1]["code"] == "THREAD_UNAVAILABLE"


async def test_a_client_that_leaves_stops_the_model_and_loses_nothing(served):
    reply = served.model.reply(say("half"), hang)
    async with served.session.post(served.url, json=served.input(user("q"))) as response:
        while b"half" not in await response.content.readuntil(b"\n\n"):
            pass
        response.close()
    await reply.gone.wait()
    while True:  # the commit follows at once; a thread that is still taken says so
        probe = await served.run(user("probe"))
        if probe.events[-1].get("code") != "THREAD_BUSY":
            break
    assert served.last_request[:2] == [("user", "q"), ("assistant", "half")]


async def test_runs_that_end_badly_leave_no_connection_behind(served):
    endings = [
        (http(429, b"", {"x-should-retry": "false"}),),
        (http(400, b""),),
        (say("a"), cut),
        (say("a"),),
        (say("a"), raw(b"data: x\n\n")),
    ]
    for n in range(50):
        served.model.reply(*endings[n % len(endings)])
        await served.run(user("q"), thread=f"t{n}")
    before = served.model.connections
    served.model.otherwise(say("a"), fin())
    for n in range(20):
        assert (await served.run(user("q"), thread=f"u{n}")).text == "a"
    assert served.model.connections - before <= 1


async def test_prompts_and_keys_stay_out_of_the_log(served, caplog):
    caplog.set_level("DEBUG", logger="agui_lambda")
    served.model.reply(say("secret answer"), fin())
    await served.run(user("secret question"))
    served.model.reply(say("half secret"), cut)
    await served.run(user("secret question", "2"))
    leaks = '{"error": {"message": "bad key Bearer test-key, prompt was: secret question", "code": "oh_no"}}'
    for n, steps in enumerate(
        (
            (http(401, leaks, {"content-type": "application/json"}),),
            (http(400, leaks, {"content-type": "application/json"}),),
            (raw(b"data: {bad secret answer\n\n"),),
            (raw(b"data: " + leaks.encode() + b"\n\n"),),
            (http(200, "<html>secret</html>"),),
            (say("x"), raw(b'data: {"choices": "secret"}\n\n')),
        )
    ):
        served.model.reply(*steps)
        assert (await served.run(user("secret question", f"x{n}"))).types[-1] == "RUN_ERROR"
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("agui_lambda")]
    assert any("oh_no" in line for line in ours)
    assert not any("secret" in line or "test-key" in line for line in ours)


async def test_hostile_ids_are_only_ids(served):
    served.model.otherwise(say("a"), fin())
    for thread in ("#", "a#b", "../..", "😀", "x" * 10_000, " ", "\u0000", "meta", "\ud83d"):
        answer = await served.run(user("q"), thread=thread)
        assert answer.events[0]["threadId"] == thread
        assert answer.types[-1] == "RUN_FINISHED"


async def test_an_agent_can_say_whose_history_counts():
    agents = {"/client": Agent(name="c", history="client"), "/server": Agent(name="s", history="server")}
    async with agent_server(agents) as served:
        served.model.otherwise(say("a"), fin())
        for path, expected in (("/client", ["q1"]), ("/server", ["q0", "a", "q1"])):
            await served.post(served.input(user("q0")), path)
            await served.post(served.input(user("q1")), path)
            assert [content for _, content in served.last_request] == expected
