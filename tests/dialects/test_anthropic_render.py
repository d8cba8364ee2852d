"""What rendering makes of a changed envelope, and of one that came from elsewhere."""

from __future__ import annotations

from typing import Any

from lamina import Budget, Envelope, Form, Ledger, Options, RequestHead, Role, Segment, build, segments
from lamina.core import Image, Raw, Text
from lamina.core.values import Digest, Fold, LedgerLine
from lamina.dialects.anthropic import DIALECT
from tests.dialects.anthropic_requests import MARK, PICTURE, SEARCH, Json, fitted

LONG = "word " * 400
CALL: Json = {
    "type": "tool_use",
    "id": "t1",
    "name": "read",
    "input": {"path": "a.py"},
    "caller": {"type": "direct"},
}
RESULT: Json = {
    "type": "tool_result",
    "tool_use_id": "t1",
    "content": LONG,
    "cache_control": MARK,
    "novel": 1,
}
STEP: list[Json] = [
    {"role": "user", "content": "hello"},
    {"role": "assistant", "content": [{"type": "text", "text": "reading"}, CALL]},
    {"role": "user", "content": [RESULT, {"type": "text", "text": "go on"}], "novel": 2},
    {
        "role": "assistant",
        "content": [{"type": "text", "text": LONG, "citations": [], "cache_control": MARK}],
    },
]
REST: list[Json] = [
    *({"role": role, "content": f"{role} {i}"} for i in range(3) for role in ("user", "assistant")),
    {"role": "user", "content": "and now?"},
]


def lowered(messages: list[Json], form: Form, *places: int, model: str = "local") -> list[Json]:
    """The messages as sent when the ledger says that segments at these places of the log are lowered."""
    parsed = DIALECT.wire.parse({"model": model, "messages": messages})
    refs = [entry.ref for entry in build(parsed.log).entries]
    lines = {refs[at]: LedgerLine(form=form, why="old", wording=1, sent=Digest("")) for at in places}
    options = Options(repairs=DIALECT.wire.repairs)
    envelope = build(parsed.log, head=parsed.head, ledger=Ledger(lines=lines), options=options)
    sent: list[Json] = DIALECT.wire.render(envelope)["messages"]
    return sent


def test_a_lowered_result_keeps_marker_and_unknown_fields_and_its_neighbours() -> None:
    sent = lowered(STEP, Form.STUB, 3)
    assert sent[2]["novel"] == 2
    stub, text_block = sent[2]["content"]
    assert stub == RESULT | {"content": stub["content"]}
    assert stub["content"].startswith("[trimmed: read a.py · ")
    assert text_block is STEP[2]["content"][1]
    assert [sent[i] is STEP[i] for i in (0, 1, 3)] == [True] * 3


def test_a_marker_moves_to_what_replaces_its_block() -> None:
    sent = lowered(STEP, Form.COMPACT, 5)
    (block,) = sent[3]["content"]
    assert block == {"type": "text", "text": block["text"], "cache_control": MARK}
    assert len(block["text"]) < len(LONG)


def test_a_lowered_call_keeps_what_it_is_not_asked_to_lower() -> None:
    call = CALL | {"input": {"path": "a.py", "content": LONG}}
    sent = lowered([STEP[0], {"role": "assistant", "content": [call]}, *STEP[2:]], Form.COMPACT, 1)
    (block,) = sent[1]["content"]
    assert block == call | {"input": block["input"]}
    assert block["input"]["path"] == "a.py"
    assert block["input"]["content"].startswith("[trimmed: ")


def test_a_string_stays_a_string() -> None:
    sent = lowered(
        [{"role": "user", "content": "q"}, {"role": "assistant", "content": LONG}, *REST], Form.COMPACT, 1
    )
    assert isinstance(sent[1]["content"], str)


def test_what_a_message_said_besides_its_content_survives_its_first_block() -> None:
    spoken = {"role": "assistant", "content": [{"type": "thinking", "thinking": "a", "signature": "s"}, CALL]}
    sent = lowered([STEP[0], spoken | {"novel": 3}, *STEP[2:]], Form.OMITTED, 1)
    assert sent[1] == {"role": "assistant", "novel": 3, "content": [CALL]}


def test_a_search_and_what_it_found_are_lowered_together() -> None:
    marked = [
        block | {"cache_control": MARK | {"ttl": ttl}}
        for block, ttl in zip(SEARCH, ("1h", "5m"), strict=True)
    ]
    spoken = {"role": "assistant", "content": [{"type": "text", "text": "so"}, *marked]}
    sent = lowered([STEP[0], spoken, *REST], Form.STUB, 2)
    assert [block["type"] for block in sent[1]["content"]] == ["text", "text"]
    assert sent[1]["content"][1]["cache_control"] == MARK | {"ttl": "5m"}


def test_a_fold_that_would_part_parallel_calls_does_not_stand() -> None:
    calls = [CALL, CALL | {"id": "t2"}]
    answers = [{"type": "tool_result", "tool_use_id": id_, "content": id_} for id_ in ("t1", "t2")]
    messages = [STEP[0], {"role": "assistant", "content": calls}, {"role": "user", "content": answers}]
    log = DIALECT.wire.parse({"messages": messages}).log
    refs = [entry.ref for entry in build(log).entries]
    fold = Fold(key="fold-1", covers=(refs[2], refs[4]), text="second call", cut=1)
    envelope = build(log, ledger=Ledger(folds=(fold,)))
    assert DIALECT.wire.render(envelope)["messages"] == messages
    assert envelope.ledger.folds == ()


def test_results_come_first_and_keep_their_call() -> None:
    swapped = {"role": "user", "content": STEP[2]["content"][::-1]}
    sent = fitted({"max_tokens": 1, "messages": [*STEP[:2], swapped]})[0]["messages"]
    assert sent[2]["content"] == STEP[2]["content"]


def test_a_blank_text_inside_a_result_is_left_out() -> None:
    blank = RESULT | {"content": [{"type": "text", "text": " "}, PICTURE]}
    sent = fitted({"max_tokens": 1, "messages": [*STEP[:2], {"role": "user", "content": [blank]}]})[0][
        "messages"
    ]
    assert sent[2]["content"] == [RESULT | {"content": [PICTURE]}]


def test_a_system_message_before_everything_becomes_system_text() -> None:
    messages = [{"role": "system", "content": "first"}, {"role": "user", "content": "q"}]
    request = {"max_tokens": 1, "system": "text", "messages": messages}
    assert fitted(request)[0]["system"] == [
        {"type": "text", "text": "text"},
        {"type": "text", "text": "first"},
    ]
    assert fitted({"max_tokens": 1, "messages": messages})[0]["system"] == [{"type": "text", "text": "first"}]


PDF = {"type": "base64", "media_type": "application/pdf", "data": "aGk="}
PLAIN = {"type": "text", "media_type": "text/plain", "data": "plain"}
FOREIGN = {"wire": {"dialect": "other", "message": {}, "count": 1}}


def typed(*log: Segment, model: str = "claude-opus-5-5", ledger: Ledger = Ledger()) -> Json:  # noqa: B008
    return DIALECT.wire.render(typed_envelope(*log, model=model, ledger=ledger))


def typed_envelope(*log: Segment, model: str, ledger: Ledger = Ledger()) -> Envelope:  # noqa: B008
    head = RequestHead(parameters={"max_tokens": 1, "model": model})
    return build(log, head=head, ledger=ledger, options=Options(repairs=DIALECT.wire.repairs))


def test_what_came_from_elsewhere_is_rendered_from_its_parts() -> None:
    request = typed(
        segments.system("be brief"),
        segments.user(
            [Text("see"), Image(url="data:image/jpeg;base64,aGk="), Image(url="https://x.test/a.png")]
        ),
        segments.document(name="a.pdf", data="aGk=", media_type="application/pdf"),
        segments.document(name="a.txt", text="plain"),
        segments.user(Raw(dialect="other", data={"kind": "audio"}), joins=True),
        segments.thinking("signed elsewhere", signature="s", meta=FOREIGN),
        segments.thinking("unsigned", joins=True),
        segments.thinking("mine", signature="s", joins=True),
        Segment(role=Role.ASSISTANT, kind="assistant", parts=(Raw(dialect="other", data={}),), joins=True),
        segments.call("fs.read", '{"path": "a"}', id="call:1"),
        segments.call("now", "not json", id="c2"),
        segments.result([Text("a"), Image(data="aGk=", media_type="image/png")], id="call:1", error=True),
        segments.result((), id="c2"),
        segments.user("go on"),
    )
    assert DIALECT.wire.check(request) == []
    user, assistant, results, last = request["messages"]
    assert request["system"] == [{"type": "text", "text": "be brief"}]
    assert user["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "aGk="}},
        {"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}},
        {"type": "document", "title": "a.pdf", "source": PDF},
        {"type": "document", "title": "a.txt", "source": PLAIN},
        {"type": "text", "text": '{"kind": "audio"}'},
    ]
    renamed = assistant["content"][1]["id"]
    assert assistant["content"] == [
        {"type": "thinking", "thinking": "mine", "signature": "s"},
        {"type": "tool_use", "id": renamed, "name": "fs_read", "input": {"path": "a"}},
        {"type": "tool_use", "id": "c2", "name": "now", "input": {"arguments": "not json"}},
    ]
    content = [{"type": "text", "text": "a"}, PICTURE]
    assert results["content"] == [
        {"type": "tool_result", "tool_use_id": renamed, "content": content, "is_error": True},
        {"type": "tool_result", "tool_use_id": "c2"},
    ]
    assert last == {"role": "user", "content": "go on"}


class Block:
    """What the SDK hands out: an object that can say what it is."""

    def __init__(self, fields: Json) -> None:
        self.fields = fields

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Block) and other.fields == self.fields

    __hash__ = None  # type: ignore[assignment]

    def model_dump(self, **_: Any) -> Json:
        return self.fields


def test_objects_of_an_sdk_pass_through_and_are_lowered() -> None:
    answer = [Block({"type": "text", "text": "reading"}), Block(CALL), Block(SEARCH[0])]
    messages = [STEP[0], {"role": "assistant", "content": answer}, *STEP[2:]]
    rendered, _ = fitted({"max_tokens": 1, "messages": messages})
    assert rendered["messages"][1] is messages[1]
    assert DIALECT.wire.check(rendered) == []
    sent = lowered(messages, Form.STUB, 1)
    assert sent[1]["content"][1:] == answer[1:]


def test_a_budget_cuts_old_thinking_with_what_it_was_bound_to() -> None:
    thought = {"type": "thinking", "thinking": "a", "signature": "s"}
    spoken = {"role": "assistant", "content": [thought, {"type": "text", "text": LONG}]}
    messages = [STEP[0], {"role": "assistant", "content": LONG * 3}, STEP[0], spoken, *REST]
    request = {"model": "claude-opus-5-5", "max_tokens": 1, "messages": messages}
    rendered, envelope = fitted(request, budget=Budget(window=1_500, reserve=0, keep_last=1))
    assert envelope.cut
    assert "signature" not in str(rendered)
    assert DIALECT.wire.check(rendered) == []
