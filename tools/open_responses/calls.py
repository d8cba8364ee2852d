"""Asking a server of the Responses API, and reading what it answers."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

PATIENCE = 300
"""Seconds that an answer may take."""

_LINE_END = re.compile(r"\r\n|\n|\r")

Json = dict[str, Any]


class Answer(NamedTuple):
    """An answer as it came. `change` is what a gateway of lamina says that it did to the request."""

    status: int
    content_type: str
    body: bytes
    change: str = ""

    @property
    def json(self) -> Any:
        """The answer's value; None if it is not JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


class Api:
    """A server. `history` stands before the input of every request that continues no earlier answer."""

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str = "none",
        history: Sequence[Json] = (),
        max_output_tokens: int = 0,
    ) -> None:
        self._base_url = base_url.removesuffix("/")
        self._model = model
        self._api_key = api_key
        self._history = history
        self._limits: Json = {}
        if max_output_tokens:
            self._limits = {"max_output_tokens": max_output_tokens}
        self.answers: list[Answer] = []

    def create(self, *items: Json, **fields: Any) -> Answer:
        """Ask for an answer to these items."""
        history = self._history
        if "previous_response_id" in fields:
            history = ()
        return self.post(
            "/responses", {"model": self._model, "input": [*history, *items], **self._limits, **fields}
        )

    def compact(self, *items: Json, **fields: Any) -> Answer:
        """Ask for a compaction of these items."""
        return self.post("/responses/compact", {"input": list(items), **fields})

    def compact_with_model(self, *items: Json) -> Answer:
        return self.compact(*items, model=self._model, prompt_cache_key="lamina-conformance")

    def post(self, path: str, body: Json) -> Answer:
        headers = {"content-type": "application/json", "authorization": f"Bearer {self._api_key}"}
        request = Request(self._base_url + path, data=json.dumps(body).encode(), headers=headers)  # noqa: S310 - the user's own address
        try:
            with urlopen(request, timeout=PATIENCE) as response:  # noqa: S310 - as above
                answer = _read_answer(response)
        except HTTPError as error:
            with error:
                answer = _read_answer(error)
        self.answers.append(answer)
        return answer


def _read_answer(response: Any) -> Answer:
    headers = response.headers
    content_type = headers.get("content-type", "")
    return Answer(response.status, content_type, response.read(), headers.get("x-lamina", ""))


class ReadStream(NamedTuple):
    """The events of a stream, and what could not be read of it."""

    events: list[Json]
    problems: list[str]


def read_stream(answer: Answer) -> ReadStream:
    """Read an answer as server-sent events. Comments and `[DONE]` are not events."""
    if answer.status != 200:
        return ReadStream([], [f"the status is {answer.status}"])
    if not answer.content_type.lower().startswith("text/event-stream"):
        return ReadStream([], [f"the stream has the type {answer.content_type!r}"])
    stream = ReadStream([], [])
    name = ""
    data: list[str] = []
    for line in _LINE_END.split(answer.body.decode("utf-8", "replace")):
        field, _, text = line.partition(":")
        if field == "event":
            name = text.removeprefix(" ")
        elif field == "data":
            data.append(text.removeprefix(" "))
        elif not line and data:
            _read_event(name, "\n".join(data), stream)
            name = ""
            data = []
    if data:
        stream.problems.append("the last event has no end")
    return stream


def _read_event(name: str, data: str, stream: ReadStream) -> None:
    if data == "[DONE]":
        return
    try:
        event = json.loads(data)
    except ValueError:
        stream.problems.append(f"an event is not JSON: {data[:80]}")
        return
    if not isinstance(event, dict):
        stream.problems.append(f"an event is not an object: {data[:80]}")
        return
    if name and name != event.get("type"):
        stream.problems.append(f"an event is named {name} and has the type {event.get('type')}")
    stream.events.append(event)
