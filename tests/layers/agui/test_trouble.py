"""Runs in which something fails: how they end, what is kept, and what nobody gets to see."""

import asyncio

import boto3
import pytest

from tests.agent_server import agent_server, user
from tests.model_server import chunk, cut, fin, hang, http, raw, say, wait_for, wire

pytestmark = pytest.mark.anyio


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
    assert await served.kept() == [("user", "q")] + ([("assistant", half)] if half else [])


async def test_a_model_that_cannot_be_reached(unused_port):
    async with agent_server(OPENAI_BASE_URL=f"http://127.0.0.1:{unused_port}/v1") as served:
        answer = await served.run(user("q"))
    assert answer.events[-1]["code"] == "MODEL_UNREACHABLE"


@pytest.mark.parametrize("settings", [{"OPENAI_API_KEY": ""}, {"OPENAI_API_KEY": None, "OPENAI_BASE_URL": ""}])
async def test_an_agent_without_a_key_says_so(settings):
    """A base URL that is set to nothing means OpenAI, which wants a key."""
    async with agent_server(**settings) as served:
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
