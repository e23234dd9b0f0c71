"""What the agents of one app share: who may call, where threads lie, and the model's provider."""

from __future__ import annotations

import gc
import logging
import os
from dataclasses import dataclass

from agui_lambda import access
from agui_lambda.model.client import ModelClient
from agui_lambda.secrets import Secret
from agui_lambda.threads.dynamodb import DynamoDBStore

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Deployment:
    """Made once per environment; connections are opened with the first use and kept."""

    access: access.Access
    threads: DynamoDBStore
    model: ModelClient

    @classmethod
    def from_environment(cls) -> Deployment:
        """From `TABLE_NAME`, `ACCESS` and `OPENAI_…` (README, Settings). Raises ValueError when one is missing."""
        table = os.environ.get("TABLE_NAME")
        if not table:
            raise ValueError("TABLE_NAME is not set: the DynamoDB table that keeps the threads")
        return cls(access.from_environment(), DynamoDBStore(table), ModelClient(Secret("OPENAI_API_KEY")))

    async def warm_up(self) -> None:
        """Imports and connects what the first run will need, while the environment has nothing else to do.

        A failure is only logged: the request that meets it again can tell its sender.
        """
        # What is imported stays. To look through it for garbage, again and again, is a fifth of the time it takes.
        gc.disable()
        try:
            for part in (self.access, self.threads, self.model):
                try:
                    await part.warm_up()
                except Exception:
                    logger.warning("%s is not ready yet", type(part).__name__, exc_info=True)
        finally:
            gc.freeze()  # or the next full collection would hold up a token for 60 ms
            gc.enable()

    async def close(self) -> None:
        await self.model.close()
