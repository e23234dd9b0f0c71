"""What the tests of whole runs share."""

from collections.abc import AsyncIterator

import pytest

from agui_lambda import Agent
from tests.agent_server import AgentServer, agent_server


@pytest.fixture
async def served() -> AsyncIterator[AgentServer]:
    async with agent_server(Agent(name="assistant", model_timeout=0.3)) as served:
        yield served
