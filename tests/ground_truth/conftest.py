"""What the ground-truth tests share. What of AWS is missing on this machine is said and skipped; in CI it fails."""

import pytest

from tests.ground_truth.node import node_client


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """For the fixtures that live as long as a module: an emulator takes a moment to start."""
    return "asyncio"


@pytest.fixture(scope="session")
def node() -> tuple[str, ...]:
    return node_client()
