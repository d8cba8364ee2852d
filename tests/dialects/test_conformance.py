"""The conformance suite for every dialect of lamina, and planted faults, each of which it must find."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import msgspec
import pytest

from lamina import testing
from lamina.core.repair import Repairs
from lamina.core.values import Head
from lamina.dialects import DIALECTS
from lamina.dialects.memos import ParseMemo
from lamina.dialects.port import Dialect, OwnHead, ParsedRequest, PlainHead
from lamina.testing.cases import Conformance

CASES: list[Conformance] = [case for subject in DIALECTS.values() for case in testing.dialect(subject)]
SOUND = DIALECTS["anthropic"]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_dialect_keeps_its_promises(case: Conformance) -> None:
    case()


def without_results(envelope: Any) -> dict[str, Any]:
    request = SOUND.render(envelope)
    return {**request, "messages": [m for m in request["messages"] if "tool_result" not in str(m["content"])]}


def forgetful(request: Mapping[str, Any], *, memo: ParseMemo | None = None) -> ParsedRequest:
    first_parse = vars(memo).setdefault("first", SOUND.parse(request)) if memo is not None else None
    return first_parse or SOUND.parse(request)


def careless(request: Mapping[str, Any], **_: Any) -> ParsedRequest:
    return SOUND.parse({**request, "messages": [{"content": m["content"], **m} for m in request["messages"]]})


def untranslated(plain: PlainHead) -> OwnHead:
    return OwnHead(head=Head(tools=({"type": "function"},), parameters={"model": plain.model}))


def with_one_tool(head: Head) -> PlainHead:
    plain = SOUND.plain_head(head)
    return msgspec.structs.replace(plain, tools=plain.tools[:1])


def backwards(request: Mapping[str, Any]) -> Any:
    stream = SOUND.stream(request)
    return msgspec.structs.replace(stream, blocks=stream.blocks[::-1])


PLANTED: dict[str, tuple[str, dict[str, Any]]] = {
    "knows nothing": ("own requests are recognised", {"recognises": lambda _: False}),
    "copies": ("untouched means untouched", {"render": lambda e: deepcopy(SOUND.render(e))}),
    "loses results": ("every request of a session fits", {"render": without_results}),
    "remembers too much": ("a memo changes nothing", {"parse": forgetful}),
    "mends nothing": ("damage is mended", {"repairs": Repairs()}),
    "keeps foreign tools": ("others can be said", {"own_head": untranslated}),
    "refuses itself": ("its own is carried", {"carries": lambda _: "no"}),
    "forgets tools": ("a head keeps its meaning", {"plain_head": with_one_tool}),
    "marks nothing": ("markers are no part of the stream", {"mark": lambda request, _: dict(request)}),
    "reads backwards": ("the stream reads everything", {"stream": backwards}),
    "trips": ("nonsense is refused", {"parse": careless}),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_fault_is_found(planted: str) -> None:
    promise, fault = PLANTED[planted]
    broken: Dialect = msgspec.structs.replace(SOUND, **fault)
    case = next(case for case in testing.dialect(broken) if case.name == f"anthropic: {promise}")
    with pytest.raises((AssertionError, KeyError, TypeError)):
        case()
