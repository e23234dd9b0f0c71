"""From an HTTP request to the events of fronts older than the function URL: a REST API and a load balancer.

Pure, as `event` is. Sources of the shapes:
https://docs.aws.amazon.com/apigateway/latest/developerguide/set-up-lambda-proxy-integrations.html and
https://docs.aws.amazon.com/elasticloadbalancing/latest/application/lambda-functions.html
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from local.event import Headers, body_of, path_of, request_headers

STAGE = "prod"


def rest_event(scope: Mapping[str, Any], body: bytes, *, url_id: str, region: str, request_id: str) -> dict[str, Any]:
    """Payload 1.0 of an API Gateway REST API with the resource /{proxy+}."""
    path = path_of(scope)
    headers = _many(request_headers(scope))
    parameters = _many(parse_qsl(_query(scope), keep_blank_values=True))
    now = time.time()
    return {
        "resource": "/{proxy+}",
        "path": path,
        "httpMethod": scope["method"],
        "headers": _last(headers),
        "multiValueHeaders": headers,
        "queryStringParameters": _last(parameters) or None,
        "multiValueQueryStringParameters": parameters or None,
        "pathParameters": {"proxy": path[1:]} if path != "/" else None,
        "stageVariables": None,
        "requestContext": {
            "accountId": "012345678912",
            "apiId": url_id,
            "domainName": f"{url_id}.execute-api.{region}.amazonaws.com",
            "domainPrefix": url_id,
            "httpMethod": scope["method"],
            "identity": {
                "sourceIp": (scope.get("client") or ("127.0.0.1", 0))[0],
                "userAgent": _last(headers).get("user-agent"),
            },
            "path": f"/{STAGE}{path}",
            "protocol": f"HTTP/{scope.get('http_version', '1.1')}",
            "requestId": request_id,
            "requestTime": time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(now)),
            "requestTimeEpoch": int(now * 1000),
            "resourceId": "local",
            "resourcePath": "/{proxy+}",
            "stage": STAGE,
        },
        "body": None,
        "isBase64Encoded": False,
    } | body_of(body, _last(headers))


def alb_event(scope: Mapping[str, Any], body: bytes, *, url_id: str, region: str, request_id: str) -> dict[str, Any]:
    """The event of an Application Load Balancer whose target group has no multi-value headers, as is the default."""
    headers = _last(_many(request_headers(scope)))
    # A load balancer does not decode.
    pairs = (pair.partition("=") for pair in _query(scope).split("&") if pair)
    target_group = f"arn:aws:elasticloadbalancing:{region}:012345678912:targetgroup/local/{url_id[:16]}"
    return {
        "requestContext": {"elb": {"targetGroupArn": target_group}},
        "httpMethod": scope["method"],
        "path": path_of(scope),
        "queryStringParameters": {name: value for name, _, value in pairs},
        "headers": headers,
        "body": "",
        "isBase64Encoded": False,
    } | body_of(body, headers)


def _query(scope: Mapping[str, Any]) -> str:
    return str(scope.get("query_string", b"").decode("latin-1"))


def _many(pairs: Headers) -> dict[str, list[str]]:
    many: dict[str, list[str]] = {}
    for name, value in pairs:
        many.setdefault(name, []).append(value)
    return many


def _last(many: Mapping[str, list[str]]) -> dict[str, str]:
    return {name: values[-1] for name, values in many.items()}
