"""A secret value: from the environment on a laptop, from Secrets Manager on AWS."""

from __future__ import annotations

import asyncio
import os


class Secret:
    """The secret that environment variable `name` holds, or that `<name>_SECRET` names in Secrets Manager.

    Fetched once and kept until it is to be forgotten. White space around it, such as a last newline, is not part of it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._value: str | None = None
        self._lock = asyncio.Lock()

    async def value(self) -> str | None:
        """The secret; None when neither variable is set. Raises botocore's errors when it cannot be fetched."""
        async with self._lock:
            if self._value is None:
                self._value = os.environ.get(self.name)
                if self._value is None and (secret_id := os.environ.get(f"{self.name}_SECRET")):
                    self._value = await asyncio.to_thread(_fetch, secret_id)
        return self._value.strip() if self._value is not None else None

    def forget(self) -> None:
        """The secret turned out to be wrong: look again the next time."""
        self._value = None


def _fetch(secret_id: str) -> str:
    import boto3

    value: str = boto3.client("secretsmanager").get_secret_value(SecretId=secret_id)["SecretString"]
    return value
