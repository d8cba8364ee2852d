"""A client of no SDK for tests of `wrap`: it sends over httpx as SDKs do, to an API that is a function."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import httpx2

from lamina.dialects.anthropic.server import BETAS

Json = dict[str, Any]

PATHS = {
    "messages": "/v1/messages",
    "chat.completions": "/v1/chat/completions",
    "responses": "/v1/responses",
    "models": "/v1beta/models/m:generateContent",
    "chat": "/api/chat",
}
"""Where the API has each resource of a client."""


class ApiError(Exception):
    """Raised by an API: it answers with this status. The client raises it for every error of its API."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status_code = status


class Answer(dict[str, Any]):
    """An answer with the attributes that an SDK's objects have."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def to_answer(value: Any) -> Any:
    match value:
        case dict():
            return Answer({name: to_answer(inner) for name, inner in value.items()})
        case list():
            return [to_answer(inner) for inner in value]
    return value


def plain_client(answer: Callable[[Json], Any], resource: str = "messages") -> Any:
    """A client with the `create` of one resource. `answer` gets a request as it reached the API.

    It returns JSON, or the events of a stream in a list.
    """

    def serve(request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content)
        if BETAS in request.headers:
            body["betas"] = request.headers[BETAS]
        try:
            reply = answer(body)
        except ApiError as error:
            shape = {"type": "error", "error": {"type": "invalid_request_error", "message": str(error)}}
            return httpx2.Response(error.status_code, json=shape)
        if isinstance(reply, list):
            events = "".join(f"data: {json.dumps(event)}\n\n" for event in reply)
            return httpx2.Response(200, headers={"content-type": "text/event-stream"}, text=events)
        return httpx2.Response(200, json=reply)

    http = httpx2.Client(transport=httpx2.MockTransport(serve), base_url="https://api.example")

    def create(*, extra_headers: Json | None = None, **request: Any) -> Any:
        response = http.post(PATHS[resource], json=request, headers=extra_headers)
        if response.is_error:
            raise ApiError(response.status_code, response.text)
        if request.get("stream"):
            return read_events(response)
        return to_answer(response.json())

    methods = {"generate_content": create} if resource == "models" else {"create": create}
    endpoint: Any = create if resource == "chat" else SimpleNamespace(**methods)
    for name in reversed(resource.split(".")):
        endpoint = SimpleNamespace(**{name: endpoint})
    vars(endpoint)["_client"] = http
    return endpoint


def read_events(response: httpx2.Response) -> Iterator[Any]:
    for line in response.iter_lines():
        if line.startswith("data: "):
            yield to_answer(json.loads(line.removeprefix("data: ")))
