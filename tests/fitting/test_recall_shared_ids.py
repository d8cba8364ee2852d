"""A recall and a call of the client that share an id, as local servers give them: each has its own result."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lamina import Budget, fit_request
from lamina.conversations.recall_loop import RecallLoop, place_after, splice_exchanges
from lamina.conversations.request_digests import NO_DIGESTS, digest_log
from lamina.core import ToolResult, text_of
from lamina.dialects import DIALECTS
from tests.conversations.test_truncated_calls import APIS_OF_DIALECTS, NAMES
from tests.dialects import wires
from tests.dialects.wires import WIRES
from tests.wrapped.scripted_api import APIS, Call, Said

Json = dict[str, Any]
BUDGET = Budget(window=8_000)
SHARED = "call_0"
RECALL = Call("recall", {"key": "k1"}, SHARED)
OWN = Call("read_file", {"path": "a.py"}, SHARED)


def own_exchange(name: str) -> list[Json]:
    """The answer as the client has it in its history, without the recall, and its result.

    The result has an id or, where the API gives none, the name of its tool.
    """
    wire = WIRES[name]
    own_id = "" if name == "ollama" else SHARED
    tool = "read_file" if name in ("gemini", "ollama") else ""
    calls = wire.call([wires.Call(own_id, "read_file", {"path": "a.py"})])
    return [*calls, *wire.answer([wires.Result(own_id, tool, "of the file")])]


@pytest.mark.parametrize("said", [[OWN, RECALL], [RECALL, OWN]], ids=["own first", "recall first"])
@pytest.mark.parametrize("name", NAMES)
def test_a_recall_that_shares_its_id_gets_its_own_result(name: str, said: Said) -> None:
    dialect = DIALECTS[name]
    wire = WIRES[name]
    model = "claude-opus-4-8" if name == "anthropic" else "m"
    base: Json = {"model": model, "max_tokens": 9} if name == "anthropic" else {"model": model}
    asked: Json = {**base, wire.field: [wire.ask("Hi")]}
    digests = digest_log(dialect.wire.parse(asked).log, NO_DIGESTS)
    place = place_after(asked, digests)
    assert place is not None

    loop = RecallLoop(dialect)
    write, _ = APIS[APIS_OF_DIALECTS[name]]
    fitted = msgspec.structs.replace(fit_request(asked, dialect=name, budget=BUDGET), has_recall=True)
    assert loop.take(dialect.answers.absorb(write(said, 10)), fitted) == ()
    exchange = loop.exchange(place)
    assert exchange is not None

    history: Json = {**base, wire.field: [*asked[wire.field], *own_exchange(name)]}
    digests = digest_log(dialect.wire.parse(history).log, NO_DIGESTS)
    spliced = splice_exchanges(history, [exchange], digests)
    assert spliced is not history
    sent = fit_request(spliced, dialect=name, budget=BUDGET)
    assert dialect.wire.check(sent.request) == []
    answers = {}
    for entry in sent.envelope.sent:
        if isinstance(entry.parts[0], ToolResult):
            assert entry.asked is not None
            answers[entry.asked.name] = text_of(entry.parts[0].content)
    assert answers["read_file"] == "of the file"
    assert "k1" in answers["recall"]
    if name == "gemini":
        parts = [part for content in sent.request["contents"] for part in content["parts"]]
        assert {len(part) for part in parts} == {1}
    # What leaves is read in the same way by whoever reads it next.
    again = fit_request(sent.request, dialect=name, budget=BUDGET)
    assert [entry.asked for entry in again.envelope.sent] == [entry.asked for entry in sent.envelope.sent]
