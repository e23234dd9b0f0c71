"""`@ag-ui/client`, the release of AG-UI 1.0 and the one that front ends carry today, against the agent on the local
stack: the client's own code at one end, a scripted model at the other, and Lambda's runtime in between."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from local.stack import LocalStack
from tests.clients.agent import Client, user
from tests.clients.node import node_program
from tests.model_server import ModelServer, cut, fin, frame, http, raw, say, wait_for

pytestmark = pytest.mark.anyio

TOKEN = "open sesame"
VERSIONS = ("1.0.0", "0.0.59")


@pytest.fixture(scope="module", params=VERSIONS)
async def program(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    async with node_program("agent.mjs", f"client-{request.param}") as program:
        yield program


@pytest.fixture(scope="module")
async def model_server(anyio_backend: str) -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture(scope="module")
async def url(model_server: ModelServer) -> AsyncIterator[str]:
    env = {"OPENAI_BASE_URL": model_server.url, "OPENAI_API_KEY": "test-key", "OPENAI_MODEL": "scripted"}
    async with LocalStack(env=env, token=TOKEN) as stack:
        yield stack.url


@pytest.fixture
def model(model_server: ModelServer) -> ModelServer:
    """The model, with nothing seen yet."""
    model_server.requests.clear()
    return model_server


@pytest.fixture
async def client(program: Any, url: str) -> Client:
    return Client(program, url, {"Authorization": f"Bearer {TOKEN}"})


def asked(model: ModelServer, turn: int = -1) -> list[tuple[str, Any]]:
    """The conversation that the model was shown, without the agent's instructions."""
    return [(m["role"], m["content"]) for m in model.saw[turn]["messages"] if m["role"] != "system"]


def tell(model: ModelServer, answer: str) -> None:
    """The next answer of the model, word by word."""
    model.reply(say(*re.findall(r"\S+\s*", answer)), fin())


TURNS = [("I am Ada.", "Hello Ada."), ("I like bees.", "So do I."), ("Who am I, what do I like?", "Ada, and bees.")]
CONVERSATION = [message for said, answer in TURNS for message in (("user", said), ("assistant", answer))]


async def test_three_turns_of_a_client_that_sends_the_whole_history(client: Client, model: ModelServer):
    agent = await client.agent()
    for said, answer in TURNS:
        tell(model, answer)
        run = await agent.run(user(said))
        assert run.error is None
        assert run.events[-1]["type"] == "RUN_FINISHED"
    assert [asked(model, turn) for turn in range(3)] == [CONVERSATION[:1], CONVERSATION[:3], CONVERSATION[:5]]
    assert run.conversation == CONVERSATION
    assert len({message["id"] for message in run.messages}) == 6


async def test_three_turns_of_a_client_that_sends_only_new_messages(client: Client, model: ModelServer):
    agent = await client.agent()
    for said, answer in TURNS:
        tell(model, answer)
        run = await agent.run_only(user(said))
        assert run.error is None
        assert run.conversation == [("user", said), ("assistant", answer)]
    assert [asked(model, turn) for turn in range(3)] == [CONVERSATION[:1], CONVERSATION[:3], CONVERSATION[:5]]


async def test_a_client_that_sends_the_end_of_the_history_goes_on(client: Client, model: ModelServer):
    agent = await client.agent()
    for said, answer in TURNS[:2]:
        tell(model, answer)
        run = await agent.run(user(said))

    said, answer = TURNS[2]
    tell(model, answer)
    await agent.run_only(run.messages[-1], user(said))

    assert asked(model) == CONVERSATION[:5]


async def test_a_client_that_starts_again_with_nothing_but_the_thread_goes_on(client: Client, model: ModelServer):
    before = await client.agent()
    tell(model, "Hello Ada.")
    await before.run(user("I am Ada."))

    after = await client.agent(before.thread)
    tell(model, "Ada.")
    await after.run(user("Who am I?"))

    assert asked(model) == [("user", "I am Ada."), ("assistant", "Hello Ada."), ("user", "Who am I?")]


async def test_each_token_reaches_the_client_before_the_model_has_sent_the_next(client: Client, model: ModelServer):
    tokens = ["One", " two", " three", " four"]
    turns = [asyncio.Event() for _ in tokens]
    steps = [step for turn, token in zip(turns, tokens, strict=True) for step in (say(token), wait_for(turn))]
    reply = model.reply(*steps, fin())
    agent = await client.agent()

    run = agent.run(user("Count."))
    for number, turn in enumerate(turns, start=1):
        await run.reported("TEXT_MESSAGE_CONTENT", number)
        assert run.deltas == tokens[:number]
        assert len(reply.sent) == number
        turn.set()

    assert (await run).conversation[-1] == ("assistant", "One two three four")


async def test_the_run_is_there_before_the_model_has_answered(client: Client, model: ModelServer):
    answer = asyncio.Event()
    reply = model.reply(wait_for(answer), say("Here I am."), fin())
    agent = await client.agent()

    run = agent.run(user("Hello?"))
    await run.reported("RUN_STARTED")
    await reply.asked.wait()
    assert run.types == ["RUN_STARTED"]
    answer.set()

    assert (await run).types[-1] == "RUN_FINISHED"


async def test_an_answer_that_breaks_off_is_an_error_with_a_code_and_what_was_said_is_kept(
    client: Client, model: ModelServer
):
    agent = await client.agent()
    model.reply(say("It began", " well"), cut)

    run = await agent.run(user("Tell me a story."))

    assert run.error is None  # the client rejects only what never became a run
    assert run.types[-2:] == ["TEXT_MESSAGE_END", "RUN_ERROR"]
    assert run.events[-1]["code"] == "MODEL_STREAM_CUT"
    assert run.conversation == [("user", "Tell me a story."), ("assistant", "It began well")]

    tell(model, "and ended well.")
    run = await agent.run(user("Go on."))

    assert run.types[-1] == "RUN_FINISHED"
    story = [("user", "Tell me a story."), ("assistant", "It began well"), ("user", "Go on.")]
    assert asked(model) == story
    assert run.conversation == [*story, ("assistant", "and ended well.")]


async def test_a_model_that_refuses_the_key_is_an_error_with_a_code_and_the_next_turn_works(
    client: Client, model: ModelServer
):
    agent = await client.agent()
    model.reply(http(401, {"error": {"message": "Incorrect API key provided: sk-secret"}}))

    run = await agent.run(user("Hello?"))

    assert run.types == ["RUN_STARTED", "RUN_ERROR"]
    assert run.events[-1]["code"] == "MODEL_UNAUTHORIZED"
    assert "sk-secret" not in run.body

    tell(model, "Hello.")
    run = await agent.run(user("And now?"))

    assert asked(model) == [("user", "Hello?"), ("user", "And now?")]
    assert run.conversation == [("user", "Hello?"), ("user", "And now?"), ("assistant", "Hello.")]


async def test_a_second_run_on_a_thread_is_told_to_wait_and_disturbs_nothing(client: Client, model: ModelServer):
    go_on = asyncio.Event()
    model.reply(say("First"), wait_for(go_on), say(" answer."), fin())
    first = await client.agent()
    second = await client.agent(first.thread)

    running = first.run(user("One."))
    await running.reported("TEXT_MESSAGE_CONTENT")
    refused = await second.run(user("Two."))
    go_on.set()
    finished = await running

    assert refused.types == ["RUN_STARTED", "RUN_ERROR"]
    assert refused.events[-1]["code"] == "THREAD_BUSY"
    assert finished.types[-1] == "RUN_FINISHED"
    assert finished.conversation == [("user", "One."), ("assistant", "First answer.")]
    assert len(model.saw) == 1

    tell(model, "Third answer.")
    await first.run(user("Three."))
    assert asked(model) == [("user", "One."), ("assistant", "First answer."), ("user", "Three.")]


async def test_two_threads_run_at_once_and_do_not_meet(client: Client, model: ModelServer):
    both = asyncio.Event()
    replies = [model.reply(say("Hello "), wait_for(both), say("you."), fin()) for _ in range(2)]
    agents = [await client.agent() for _ in range(2)]

    runs = [agent.run(user(f"I am {index}.")) for index, agent in enumerate(agents)]
    for reply in replies:
        await reply.asked.wait()
    both.set()

    assert [(await run).conversation for run in runs] == [
        [("user", f"I am {index}."), ("assistant", "Hello you.")] for index in range(2)
    ]


async def test_an_edited_message_takes_everything_behind_it_along(client: Client, model: ModelServer):
    agent = await client.agent()
    for said, answer in TURNS[:2]:
        tell(model, answer)
        run = await agent.run(user(said))

    tell(model, "I like cats too.")
    edited = run.messages[2] | {"content": "I like cats."}
    run = await agent.run_only(*run.messages[:2], edited)

    expected = [*CONVERSATION[:2], ("user", "I like cats.")]
    assert asked(model) == expected
    assert run.conversation == [*expected, ("assistant", "I like cats too.")]

    # What is kept has changed as well: a client that sends only what is new sees it.
    tell(model, "Cats.")
    await agent.run_only(user("What do I like?"))
    assert asked(model) == [*expected, ("assistant", "I like cats too."), ("user", "What do I like?")]


async def test_an_answer_is_made_again_in_place_of_the_old_one(client: Client, model: ModelServer):
    agent = await client.agent()
    tell(model, "Roses are red.")
    run = await agent.run(user("A poem, please."))

    tell(model, "Violets are blue.")
    run = await agent.run_only(*run.messages[:1])

    assert asked(model) == [("user", "A poem, please.")]
    assert run.conversation == [("user", "A poem, please."), ("assistant", "Violets are blue.")]

    tell(model, "Sugar is sweet.")
    await agent.run(user("More."))
    assert asked(model) == [("user", "A poem, please."), ("assistant", "Violets are blue."), ("user", "More.")]


AWKWARD = [
    "👩🏽‍🚀 e\u0301 é ",
    "\u2028\u2029\u0085\ufeff",
    "\"quoted\" 'too' \\ \\n </script> ",
    "one\r\ntwo\nthree\rfour\tfive\n\n",
    "data: [DONE]\n\n",
    "مرحبا بالعالم ",
    "你好 \U00010348 \u0000\u001b\u007f",
]


async def test_text_arrives_exactly_as_it_was_written_in_both_directions(client: Client, model: ModelServer):
    agent = await client.agent()
    model.reply(say(*AWKWARD), fin())
    text = "".join(AWKWARD)

    run = await agent.run(user(text))

    assert run.deltas == AWKWARD
    assert run.conversation == [("user", text), ("assistant", text)]
    tell(model, "Yes.")
    await agent.run_only(user("Is it still the same?"))
    assert asked(model)[:2] == [("user", text), ("assistant", text)]


async def test_characters_that_the_network_cuts_in_two_arrive_whole(client: Client, model: ModelServer):
    text = "👩🏽‍🚀مé"
    stream = frame({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})
    model.reply(raw(*(stream[at : at + 1] for at in range(len(stream)))), fin())
    agent = await client.agent()

    run = await agent.run(user("Cut it."))

    assert run.conversation[-1] == ("assistant", text)


async def test_a_malformed_message_is_refused_with_the_name_of_the_field(client: Client, model: ModelServer):
    agent = await client.agent()
    message = {"id": "m1", "role": "user", "content": 7}

    run = await agent.run_body(json.dumps({"threadId": agent.thread, "runId": "r1", "messages": [message]}))

    assert run.events == []
    assert run.error is not None
    assert run.error["status"] == 422
    assert run.error["payload"]["code"] == "INVALID_INPUT"
    assert run.error["payload"]["field"] == "messages.0.content"
    assert "messages.0.content" in run.error["message"]
    assert model.saw == []


async def test_a_body_that_is_no_json_is_refused(client: Client, model: ModelServer):
    agent = await client.agent()

    run = await agent.run_body('{"threadId": ')

    assert run.events == []
    assert run.error is not None
    assert run.error["status"] == 400
    assert run.error["payload"]["code"] == "INVALID_JSON"
    assert model.saw == []


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}], ids=["no token", "a wrong token"])
async def test_who_has_not_the_token_is_refused(client: Client, model: ModelServer, headers: dict[str, str]):
    agent = await client.agent(headers=headers)

    run = await agent.run(user("Let me in."))

    assert run.events == []
    assert run.error is not None
    assert run.error["status"] == 401
    assert run.error["payload"]["code"] == "UNAUTHORIZED"
    assert model.saw == []
