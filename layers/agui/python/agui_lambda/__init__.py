"""AG-UI agents for AWS Lambda: what a user declares (`Agent`) and how it is served (`create_app`, `add_agent`)."""

from agui_lambda.agent import Agent
from agui_lambda.endpoint import add_agent, create_app

__all__ = ["Agent", "add_agent", "create_app"]
