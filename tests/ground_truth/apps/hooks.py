"""A function with SnapStart hooks, of which one may fail: the one that FAILING names."""

import os

from snapshot_restore_py import register_after_restore, register_before_snapshot

from response_streaming import StreamingMangum


def hook(name):
    print("hook", name)
    if name == os.environ.get("FAILING"):
        raise ValueError(f"{name} failed")


for number in (1, 2):
    register_before_snapshot(hook, f"before-{number}")
    register_after_restore(hook, f"after-{number}")


def plain(event, context):
    print("invoked")
    return "answer"


async def app(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError("no lifespan here")
    print("invoked")
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"answer"})


handler = StreamingMangum(app)
