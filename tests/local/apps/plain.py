"""An ordinary handler, for AWS's own runtime client."""

from typing import Any


def handler(event: dict[str, Any], context: Any) -> Any:
    if event["rawPath"] == "/boom":
        raise ValueError("boom")
    return {
        "statusCode": 200,
        "headers": {"content-type": "text/plain"},
        "cookies": ["a=1"],
        "body": f"{event['requestContext']['http']['method']} {event.get('body', '')} {context.function_name}"
        f" {context.get_remaining_time_in_millis() > 20_000} {context.aws_request_id}",
    }
