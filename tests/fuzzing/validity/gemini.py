"""The rules of generateContent. G8 is about explicit caches, which no client here uses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.fuzzing.reading import in_camel_case
from tests.fuzzing.validity.breach import Breach, Json

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")
_VERSION = re.compile(r"gemini-([0-9]+)")
_SIGNED_SINCE = 3
_DATA = ("text", "inlineData", "fileData", "functionCall", "functionResponse")


def breaches(request: Json, came: Json) -> Iterator[Breach]:
    request = in_camel_case(request)
    contents = request["contents"]
    yield from _shape(contents)
    yield from _turns(contents)
    yield from _signatures(request["model"], contents, in_camel_case(came["contents"]))
    yield from _names(request, contents)


def _calls(content: Json) -> list[Json]:
    return [part["functionCall"] for part in content["parts"] if part.get("functionCall")]


def _results(content: Json) -> list[Json]:
    return [part["functionResponse"] for part in content["parts"] if part.get("functionResponse")]


def _shape(contents: list[Json]) -> Iterator[Breach]:
    """G5: parts with one field of data, none empty, no content without parts, and the last is the user's.

    Text of nothing but spaces is taken; only "" is empty. G7: no content is the system's.
    """
    if not contents:
        yield Breach("G5", "contents", "empty")
        return
    for i, content in enumerate(contents):
        place = f"contents[{i}]"
        if content["role"] not in ("user", "model"):
            yield Breach("G7", place, f"role {content['role']!r}")
        if not content["parts"]:
            yield Breach("G5", place, "no parts")
        for part in content["parts"]:
            fields = [name for name in _DATA if part.get(name) is not None]
            if len(fields) != 1 or part.get("text") == "":
                yield Breach("G5", place, f"a part with the fields {sorted(part)}")
    if contents[-1]["role"] != "user":
        yield Breach("G5", f"contents[{len(contents) - 1}]", "the last content is the model's")


def _turns(contents: list[Json]) -> Iterator[Breach]:
    """G1: calls come right after the user, or after results. G2: as many results as calls.

    G3: their ids and names match.
    """
    for i, content in enumerate(contents):
        place = f"contents[{i}]"
        before: Any = contents[i - 1] if i else None
        after: Any = contents[i + 1] if i + 1 < len(contents) else None
        calls = _calls(content)
        if calls and content["role"] != "model":
            yield Breach("G1", place, "a call of the user")
        if calls and (before is None or before["role"] != "user"):
            yield Breach("G1", place, "a call that does not come right after the user or a result")
        answers = _results(after) if after is not None else []
        if calls and len(answers) != len(calls):
            yield Breach("G2", place, f"{len(calls)} calls and {len(answers)} results")
        if calls and len(answers) == len(calls):
            yield from _matching(calls, answers, place)
        if _results(content) and (before is None or not _calls(before)):
            yield Breach("G2", place, "results without calls right before")


def _matching(calls: list[Json], answers: list[Json], place: str) -> Iterator[Breach]:
    if sorted(call["name"] for call in calls) != sorted(answer["name"] for answer in answers):
        yield Breach("G3", place, "results have other names than the calls")
    asked = sorted(str(call["id"]) for call in calls if call.get("id"))
    answered = sorted(str(answer["id"]) for answer in answers if answer.get("id"))
    if asked and answered and asked != answered:
        yield Breach("G3", place, "results have other ids than the calls")


def _signatures(model: str, contents: list[Json], came: list[Json]) -> Iterator[Breach]:
    """G4: from Gemini 3 on, the first call of each step of the current turn has its signature, as it came."""
    found = _VERSION.match(model)
    if found is None or int(found[1]) < _SIGNED_SINCE:
        return
    given = [p.get("thoughtSignature") for content in came for p in content["parts"]]
    asks = [i for i, content in enumerate(contents) if content["role"] == "user" and _speaks(content)]
    for i in range(asks[-1] + 1 if asks else 0, len(contents)):
        first = next((part for part in contents[i]["parts"] if part.get("functionCall")), None)
        if first is not None and not first.get("thoughtSignature"):
            yield Breach("G4", f"contents[{i}]", "a call of this turn without its signature")
    for i, content in enumerate(contents):
        for part in content["parts"]:
            signature = part.get("thoughtSignature")
            if signature and signature not in given and signature != "skip_thought_signature_validator":
                yield Breach("G4", f"contents[{i}]", "a signature that the client did not send")


def _speaks(content: Json) -> bool:
    return any(not part.get("functionResponse") for part in content["parts"])


def _names(request: Json, contents: list[Json]) -> Iterator[Breach]:
    """G6: names of functions."""
    config = request.get("config") or request
    named = [one for tool in config.get("tools") or () for one in tool.get("functionDeclarations") or ()]
    for content in contents:
        named += [*_calls(content), *_results(content)]
    for one in named:
        if not _NAME.fullmatch(one["name"]):
            yield Breach("G6", "tools", f"name {one['name']!r}")
