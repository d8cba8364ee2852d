"""Requests of the Messages API there and back: whole, fitted, and damaged.

Requests are made from numbers, as the logs of `lamina.testing` are: drawing is cheap, and a failing request
shrinks by dropping pieces.
"""

from __future__ import annotations

import copy
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.core.build import EMPTY_LEDGER, build
from lamina.core.envelope import Envelope
from lamina.core.layout import Layout
from lamina.core.memo import BuildMemo
from lamina.core.options import Options
from lamina.core.values import Budget, Ledger, ToolResult
from lamina.dialects.anthropic import DIALECT, find_binding
from lamina.dialects.memos import ParseMemo
from lamina.errors import BudgetExceeded

Json = dict[str, Any]

WORDS = "alpha beta gamma delta parser cache token window retry config".split()
MARK = {"type": "ephemeral"}
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
PAPER = {
    "type": "document",
    "title": "spec.pdf",
    "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk=" * 30},
}
SEARCH: list[Json] = [
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
    {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": [{"type": "web_search_result"}],
    },
]


def fitted(
    request: Json,
    *,
    budget: Budget | None = None,
    ledger: Ledger = EMPTY_LEDGER,
    read: ParseMemo | None = None,
    memo: BuildMemo | None = None,
) -> tuple[Json, Envelope]:
    """The request as lamina sends it."""
    parsed = DIALECT.wire.parse(request, memo=read)
    options = Options(
        repairs=DIALECT.wire.repairs, binding=find_binding(request), layout=Layout(context="logged")
    )
    envelope = build(parsed.log, head=parsed.head, budget=budget, ledger=ledger, options=options, memo=memo)
    return DIALECT.wire.render(envelope), envelope


def text(dice: Random, most: int = 60) -> str:
    return f"{dice.randint(0, 99)} " + " ".join(dice.choices(WORDS, k=dice.randint(1, most)))


def block(dice: Random, most: int = 60) -> Json:
    return {"type": "text", "text": text(dice, most)}


def opening(dice: Random) -> Json:
    """What a user says, as a string or as blocks."""
    if dice.random() < 0.5:
        return {"role": "user", "content": text(dice)}
    extra = dice.choice(([], [PICTURE], [PAPER], [PICTURE, {"type": "search_result", "title": "t"}]))
    return {"role": "user", "content": [block(dice), *copy.deepcopy(extra)]}


def step(dice: Random) -> list[Json]:
    """An assistant message, with the results of its calls."""
    serial = dice.randint(0, 10**6)
    thought: list[Json] = [
        {"type": "thinking", "thinking": text(dice, 20), "signature": f"s{serial}"},
        {"type": "redacted_thinking", "data": f"d{serial}"},
    ]
    content = [
        *thought[: dice.choice((0, 0, 1, 2))],
        *dice.choice(([], [block(dice)])),
        *dice.choice(([], [], copy.deepcopy(SEARCH))),
    ]
    calls = [call(dice, f"toolu_{serial}_{i}") for i in range(dice.choice((0, 1, 1, 2, 3)))]
    content = content + calls or [block(dice)]
    spoken = {"role": "assistant", "content": content}
    if not calls:
        return [spoken if dice.random() < 0.7 else {"role": "assistant", "content": text(dice)}]
    after = dice.choice(([], [], [block(dice)]))
    return [spoken, {"role": "user", "content": [*(result(dice, c["id"]) for c in calls), *after]}]


def call(dice: Random, id_: str) -> Json:
    content = {"content": text(dice, 200)} if dice.random() < 0.3 else {}
    name = dice.choice(("read_file", "bash"))
    return {
        "type": "tool_use",
        "id": id_,
        "name": name,
        "input": {"path": f"a{dice.randint(0, 3)}.py"} | content,
    }


def result(dice: Random, id_: str) -> Json:
    words = text(dice, 400)
    body: tuple[Json, ...] = (
        {"content": words},
        {"content": [{"type": "text", "text": words}]},
        {"content": [{"type": "text", "text": words}, copy.deepcopy(PICTURE)]},
        {"content": words, "is_error": True},
        {},
    )
    return {"type": "tool_result", "tool_use_id": id_, **dice.choice(body)}


def make_request(numbers: list[int]) -> Json:
    """A valid request."""
    dice = Random(numbers[0])  # noqa: S311 - a seeded generator is the point
    messages = [opening(dice)]
    for number in numbers[1:]:
        piece = Random(number)  # noqa: S311
        messages += [opening(piece)] if piece.random() < 0.3 else step(piece)
    system: tuple[Json, ...] = (
        {},
        {"system": text(dice)},
        {"system": [block(dice), {**block(dice), "cache_control": MARK}]},
    )
    tools = [{"name": "read_file", "input_schema": {"type": "object"}, "cache_control": MARK}]
    request = {"model": "claude-sonnet-4-5", "max_tokens": 64, "metadata": {"user_id": "u"}, "novel": [1]}
    return request | dice.choice(system) | dice.choice(({}, {"tools": tools})) | {"messages": messages}


NUMBERS = st.lists(st.integers(0, 4_000), min_size=1, max_size=12)


def requests() -> st.SearchStrategy[Json]:
    return NUMBERS.map(make_request).map(unique)


def unique(request: Json) -> Json:
    """The same request with no id or signature twice: two pieces may come from one number."""
    for i, message in enumerate(request["messages"]):
        for part in message["content"] if isinstance(message["content"], list) else ():
            for sort, name, owner in OWNED:
                if part["type"] == sort:
                    part[name] = f"{part[name]}_{i + owner}"
    return request


OWNED = (
    ("tool_use", "id", 0),
    ("tool_result", "tool_use_id", -1),
    ("thinking", "signature", 0),
    ("redacted_thinking", "data", 0),
)


EVERYTHING: Json = {
    "model": "claude-opus-4-8",
    "max_tokens": 1_000,
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
    "tools": [{"name": "read_file", "input_schema": {"type": "object"}}],
    "thinking": {"type": "adaptive"},
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "see"}, PICTURE, PAPER], "novel": 1},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "", "signature": "sig"},
                {"type": "redacted_thinking", "data": "xyz"},
                *SEARCH,
                {"type": "text", "text": "found", "citations": [{"type": "char_location"}]},
                {"type": "mcp_tool_use", "id": "mcp_1", "name": "x", "server_name": "y", "input": {}},
                {"type": "mcp_tool_result", "tool_use_id": "mcp_1", "content": []},
                {
                    "type": "tool_use",
                    "id": "t1",
                    "name": "read_file",
                    "input": {"path": "a.py"},
                    "caller": {},
                },
                {"type": "tool_use", "id": "t2", "name": "read_file", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "text", "is_error": True},
                {
                    "type": "tool_result",
                    "tool_use_id": "t2",
                    "content": [PICTURE, {"type": "tool_reference"}],
                },
                {"type": "image", "source": {"type": "file", "file_id": "f"}},
                {"type": "document", "source": {"type": "content", "content": []}},
                {"type": "document", "source": {"type": "text", "data": "plain"}, "citations": {}},
                {"type": "container_upload", "file_id": "f"},
            ],
        },
        {"role": "system", "content": "Be briefer."},
        {"role": "assistant", "content": "done"},
        {"role": "user", "content": [{"type": "text", "text": "thanks", "cache_control": MARK}]},
    ],
}
"""One of every block."""

COMPACTED: Json = {
    "max_tokens": 10,
    "system": "",
    "tools": [],
    "messages": [
        {"role": "assistant", "content": [{"type": "compaction", "content": "before", "signature": "s"}]},
        {"role": "user", "content": "go on"},
    ],
}


def untouched(request: Json) -> bool:
    rendered, _ = fitted(request)
    same = [a is b for a, b in zip(rendered["messages"], request["messages"], strict=True)]
    return all(same) and rendered == request and rendered.get("system") is request.get("system")


@pytest.mark.parametrize("request_", [EVERYTHING, COMPACTED], ids=["everything", "compacted"])
def test_what_is_not_lowered_leaves_as_it_came(request_: Json) -> None:
    assert DIALECT.wire.check(request_) == []
    assert untouched(request_)


def windows(request: Json, share: float) -> Budget:
    return Budget(window=300 + int(share * fitted(request)[1].tokens), reserve=0, keep_last=1)


SHARES = st.sampled_from((0.2, 0.4, 0.6, 0.8))


@given(requests(), SHARES, st.sampled_from(("claude-opus-5-5", "claude-fable-5-1-20261001")))
def test_a_request_that_grows_stays_valid_for_models_that_bind_thinking(
    request_: Json, share: float, model: str
) -> None:
    request_ = request_ | {"model": model}
    budget, ledger, read, memo = windows(request_, share), EMPTY_LEDGER, ParseMemo(), BuildMemo()
    for length in range(1, len(request_["messages"]) + 1):
        if request_["messages"][length - 1]["role"] != "user":
            continue
        now = request_ | {"messages": request_["messages"][:length]}
        try:
            rendered, envelope = fitted(now, budget=budget, ledger=ledger, read=read, memo=memo)
        except BudgetExceeded:
            break
        assert DIALECT.wire.check(rendered) == []
        again, fresh = fitted(now, budget=budget, ledger=ledger)
        assert (again, fresh.ledger) == (rendered, envelope.ledger)
        ledger = envelope.ledger


def test_results_keep_pairing_by_position_where_ids_repeat() -> None:
    calls = [{"type": "tool_use", "id": "x", "name": n, "input": {"path": f"{n}.py"}} for n in ("one", "two")]
    answers = [{"type": "tool_result", "tool_use_id": "x", "content": n} for n in ("first", "second")]
    log = DIALECT.wire.parse(
        {"messages": [{"role": "assistant", "content": calls}, {"role": "user", "content": answers}]}
    ).log
    results = [(s.parts[0].name, s.attrs) for s in log if isinstance(s.parts[0], ToolResult)]
    assert results == [("one", {"path": "one.py"}), ("two", {"path": "two.py"})]
