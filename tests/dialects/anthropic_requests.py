"""Requests of the Messages API for tests: whole conversations from numbers, and one that breaks each rule.

Drawing numbers is cheap, and a failing request shrinks by dropping pieces.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from random import Random
from typing import Any

from lamina import Budget, BuildMemo, Envelope, Ledger, Options, build
from lamina.core import Layout
from lamina.core.build import EMPTY_LEDGER
from lamina.dialects.anthropic import DIALECT, find_binding
from lamina.dialects.memos import ParseMemo

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


COMPACTED: Json = {
    "max_tokens": 10,
    "system": "",
    "tools": [],
    "messages": [
        {"role": "assistant", "content": [{"type": "compaction", "content": "before", "signature": "s"}]},
        {"role": "user", "content": "go on"},
    ],
}


VALID: Json = {
    "model": "claude-opus-4-8",
    "max_tokens": 100,
    "system": [{"type": "text", "text": "Be brief."}],
    "tools": [{"name": "read", "input_schema": {"type": "object"}}],
    "messages": [
        {"role": "user", "content": "hello"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "sig"},
                {"type": "redacted_thinking", "data": "xyz"},
                {"type": "text", "text": "reading"},
                {"type": "tool_use", "id": "t1", "name": "read", "input": {}},
                {"type": "tool_use", "id": "t2", "name": "read", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "one"}]},
                {"type": "tool_result", "tool_use_id": "t2", "content": "two"},
                {"type": "text", "text": "and now?"},
            ],
        },
    ],
}
FIVE, HOUR = {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}
ANSWER = {"role": "assistant", "content": "so"}
INSTRUCTED = {"role": "system", "content": "Be briefer."}

Breaking = Callable[[Json, list[Json]], Any]


def instruct_an_older_model(request: Json, messages: list[Json]) -> None:
    """A system message for a model that takes none."""
    messages.append(INSTRUCTED)
    request["model"] = "claude-opus-4-6"


BREAKS: list[tuple[str, str, Breaking]] = [
    ("has_limit", "max_tokens", lambda r, _: r.pop("max_tokens")),
    ("has_limit", "max_tokens", lambda r, _: r.update(max_tokens="many")),
    ("begins_with_user", "messages[0].role", lambda _, m: m.insert(0, ANSWER)),
    ("nothing_is_empty", "messages", lambda _, m: m.clear()),
    ("ends_with_user", "messages[3]", lambda _, m: m.append(ANSWER)),
    ("calls_and_results_pair", "messages[1].content[4]", lambda _, m: m[2]["content"].pop(1)),
    ("calls_and_results_pair", "messages[2].content[1]", lambda _, m: m[1]["content"].pop(4)),
    ("calls_and_results_pair", "messages[2].content[1]", lambda _, m: doubled(m[2]["content"])),
    ("ids_are_unique", "messages[3].content[0]", lambda _, m: m.extend(again(m))),
    ("results_come_first", "messages[2].content[2]", lambda _, m: m[2]["content"].reverse()),
    ("nothing_is_empty", "messages[0].content[0]", lambda _, m: m[0].update(content=" ")),
    ("nothing_is_empty", "messages[0]", lambda _, m: m[0].update(content=[])),
    ("nothing_is_empty", "messages[1].content[2]", lambda _, m: m[1]["content"][2].update(text="\n")),
    ("nothing_is_empty", "messages[2].content[0].content[0]", lambda _, m: inner(m).update(text="")),
    ("nothing_is_empty", "system[0]", lambda r, _: r["system"][0].update(text="")),
    ("fields_are_whole", "messages[1].content[0]", lambda _, m: m[1]["content"][0].pop("signature")),
    ("fields_are_whole", "messages[1].content[1]", lambda _, m: m[1]["content"][1].update(data="")),
    ("system_messages_stand_right", "messages[0]", lambda _, m: m.insert(0, INSTRUCTED)),
    ("system_messages_stand_right", "messages[4]", lambda _, m: m.extend([INSTRUCTED, INSTRUCTED])),
    ("system_messages_stand_right", "messages[4]", lambda _, m: m.extend([ANSWER, INSTRUCTED])),
    ("system_messages_are_taken", "messages[3]", instruct_an_older_model),
    ("markers_are_taken", "messages[2].content[2]", lambda r, m: mark(FIVE, *four(r, m), m[2]["content"][2])),
    ("markers_are_taken", "cache_control", lambda r, m: r.update(cache_control=mark(FIVE, *four(r, m)))),
    (
        "markers_are_taken",
        "messages[2].content[0].content[0]",
        lambda r, m: mark(FIVE, *four(r, m), inner(m)),
    ),
    ("markers_are_taken", "messages[2].content[2]", lambda r, m: marks(r["system"][0], m[2])),
    ("markers_are_taken", "messages[1].content[0]", lambda _, m: mark(FIVE, m[1]["content"][0])),
    ("names_and_ids_fit", "tools[0].name", lambda r, _: r["tools"][0].update(name="a.b")),
    ("names_and_ids_fit", "messages[1].content[3].name", lambda _, m: m[1]["content"][3].update(name="a b")),
    ("names_and_ids_fit", "messages[1].content[3]", lambda _, m: rename(m, "a/b")),
    ("roles", "messages[0].role", lambda _, m: m[0].update(role="tool")),
    ("readable", "messages[1].content[2].text", lambda _, m: m[1]["content"][2].update(text=None)),
    ("readable", "messages[2].content[0].content[0].type", lambda _, m: inner(m).pop("type")),
    ("readable", "messages[1]", lambda r, m: r.update(messages=[m[0], 7])),
    ("readable", "messages[0].content", lambda _, m: m[0].pop("content")),
    ("readable", "messages[0].content[0]", lambda _, m: m[0].update(content=[m[1]["content"][3]])),
    ("readable", "messages[1].content[0]", lambda _, m: m[1].update(content=[m[2]["content"][0]])),
    ("readable", "messages[1].content[3].input", lambda _, m: m[1]["content"][3].update(input="ls")),
    ("readable", "system[0]", lambda r, _: r.update(system=["text"])),
    ("readable", "tools", lambda r, _: r.update(tools=["read"])),
    ("readable", "messages", lambda r, _: r.pop("messages")),
]


def again(messages: list[Json]) -> list[Json]:
    """A second step that uses an id of the first."""
    return [
        messages[1] | {"content": messages[1]["content"][3:4]},
        messages[2] | {"content": messages[2]["content"][:1]},
    ]


def inner(messages: list[Json]) -> Json:
    block: Json = messages[2]["content"][0]["content"][0]
    return block


def doubled(blocks: list[Json]) -> None:
    blocks.insert(0, blocks[0])


def mark(what: Json, *blocks: Json) -> Json:
    for block in blocks:
        block["cache_control"] = what
    return what


def marks(block: Json, message: Json) -> None:
    mark(FIVE, block)
    mark(HOUR, message["content"][2])


def four(request: Json, messages: list[Json]) -> list[Json]:
    """As many blocks as may have markers."""
    return [*request["tools"], *request["system"], *messages[1]["content"][2:4]]


def rename(messages: list[Json], id_: str) -> None:
    messages[1]["content"][3]["id"] = messages[2]["content"][0]["tool_use_id"] = id_


def _break(change: Breaking) -> Json:
    request = copy.deepcopy(VALID)
    change(request, request["messages"])
    return request


BROKEN = [(rule, place, _break(change)) for rule, place, change in BREAKS]
