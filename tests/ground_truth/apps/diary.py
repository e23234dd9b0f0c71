"""A program that logs in every way and may fail: as a plain function for AWS's own loop, and as an app for ours."""

import logging
import os

from response_streaming import StreamingMangum

logger = logging.getLogger("diary")


def work(path, context):
    logger.debug("a detail")
    logger.info("%d lines\nof text with ü", 2)
    logger.warning("with a field", extra={"order": 12, "nothing": None})
    logger.error({"a": "document", "n": 1})
    logger.log(35, "between two levels")
    logger.critical("it burns")
    logging.getLogger("another").warning("of somebody else")
    context.log("past the logger\n")
    print("printed")
    try:
        os.remove("/nowhere/to/be/found")
    except FileNotFoundError:
        logger.exception("caught")
    if path == "/fails":
        raise ValueError("not found:\nü")
    if path == "/fails-without-a-word":
        raise KeyError


def plain(event, context):
    work(event["rawPath"], context)


async def app(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError("no lifespan here")
    work(scope["path"], scope["aws.context"])
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body"})


handler = StreamingMangum(app)
