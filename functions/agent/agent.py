"""Your agent. Change it, save, and the local stack takes the new one; `make deploy` brings it to AWS."""

from agui_lambda import Agent

agent = Agent(
    name="assistant",
    instructions="You are a friendly assistant. Answer briefly, and say so when you do not know something.",
)
