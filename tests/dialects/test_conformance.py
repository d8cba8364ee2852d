"""The conformance suite for every dialect of lamina, and planted faults, each of which it must find."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import msgspec
import pytest

from lamina import RequestHead, testing
from lamina.core import Repairs
from lamina.dialects import DIALECTS, Dialect, PlainHead
from lamina.dialects.memos import ParseMemo
from lamina.dialects.port import Markers, OwnHead, ParsedRequest
from lamina.testing import Conformance

CASES: list[Conformance] = [
    case for subject in DIALECTS.values() for case in testing.dialect(subject, seeds=(1,))
]
SOUND = DIALECTS["anthropic"]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_dialect_keeps_its_promises(case: Conformance) -> None:
    case()


def without_results(envelope: Any, *_: Any) -> dict[str, Any]:
    request = SOUND.wire.render(envelope)
    return {**request, "messages": [m for m in request["messages"] if "tool_result" not in str(m["content"])]}


def forgetful(request: Mapping[str, Any], *, memo: ParseMemo | None = None) -> ParsedRequest:
    first_parse = vars(memo).setdefault("first", SOUND.wire.parse(request)) if memo is not None else None
    return first_parse or SOUND.wire.parse(request)


def careless(request: Mapping[str, Any], **_: Any) -> ParsedRequest:
    return SOUND.wire.parse(
        {**request, "messages": [{"content": m["content"], **m} for m in request["messages"]]}
    )


def untranslated(plain: PlainHead) -> OwnHead:
    return OwnHead(head=RequestHead(tools=({"type": "function"},), parameters={"model": plain.model}))


def with_one_tool(head: RequestHead) -> PlainHead:
    plain = SOUND.head.read(head)
    return msgspec.structs.replace(plain, tools=plain.tools[:1])


def backwards(request: Mapping[str, Any]) -> Any:
    stream = SOUND.cache.stream(request)
    return msgspec.structs.replace(stream, blocks=stream.blocks[::-1])


MARKS_NOTHING = Markers(cache="breakpoints", put=lambda request, _: dict(request))


def _in_wire(**faults: Any) -> dict[str, Any]:
    return {"wire": msgspec.structs.replace(SOUND.wire, **faults)}


def _in_head(**faults: Any) -> dict[str, Any]:
    return {"head": msgspec.structs.replace(SOUND.head, **faults)}


def _in_cache(**faults: Any) -> dict[str, Any]:
    return {"cache": msgspec.structs.replace(SOUND.cache, **faults)}


PLANTED: dict[str, tuple[str, dict[str, Any]]] = {
    "knows nothing": ("own requests are recognised", {"recognises": lambda _: False}),
    "copies": ("untouched means untouched", _in_wire(render=lambda e, *_: deepcopy(SOUND.wire.render(e)))),
    "loses results": ("every request of a session fits", _in_wire(render=without_results)),
    "remembers too much": ("a memo changes nothing", _in_wire(parse=forgetful)),
    "mends nothing": ("damage is mended", _in_wire(repairs=Repairs())),
    "keeps foreign tools": ("others can be said", _in_head(write=untranslated)),
    "refuses itself": ("its own is carried", _in_wire(carries=lambda _: "no")),
    "forgets tools": ("a head keeps its meaning", _in_head(read=with_one_tool)),
    "marks nothing": ("markers are no part of the stream", _in_cache(markers=MARKS_NOTHING)),
    "reads backwards": ("the stream reads everything", _in_cache(stream=backwards)),
    "trips": ("nonsense is refused", _in_wire(parse=careless)),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_fault_is_found(planted: str) -> None:
    promise, fault = PLANTED[planted]
    broken: Dialect = msgspec.structs.replace(SOUND, **fault)
    case = next(case for case in testing.dialect(broken) if case.name == f"anthropic: {promise}")
    with pytest.raises((AssertionError, KeyError, TypeError)):
        case()
