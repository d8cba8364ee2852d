"""Source system 000, the context manager of a workspace: attachments by priority, old tool results cut."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lamina import Budget, Envelope, Form, Layer, Ledger, Options, Role, Segment, build, recall
from lamina.core import (
    HIGH,
    LOW,
    Cap,
    Filter,
    Layout,
    Move,
    OrderView,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Wording,
    text_of,
)
from lamina.core.hashing import handle
from lamina.core.kinds import ESSENTIAL, MEDIUM
from lamina.core.orders import Batch
from lamina.core.tokens import BYTES4
from lamina.core.values import Digest
from lamina.segments import assistant, call, file, memory, persona, result, segment, system, user


def attached(path: str, tokens: int, *, priority: int = MEDIUM, pinned: bool = False) -> Segment:
    """A file that costs `tokens` as it is sent, its tag included; the counter rounds down."""
    around = len(f'<file_context path="{path}">\n\n</file_context>')
    text = (path * tokens * 4)[: tokens * 4 + 3 - around]
    return file(path, text, priority=priority, pinned=pinned)


def capped(*log: Segment, limit: int, ledger: Ledger | None = None) -> Envelope:
    layout = Layout(attachments=Cap(tokens=limit, form=Form.OMITTED))
    return build(log, counter=BYTES4, ledger=ledger or Ledger(), options=Options(layout=layout))


def kept(envelope: Envelope) -> list[str]:
    return [e.segment.key for e in envelope.sent if e.segment.kind == "file"]


def attachment_tokens(envelope: Envelope) -> int:
    return sum(e.tokens for e in envelope.sent if e.segment.kind == "file")


ASK = user("What do they say?")
ENVIRONMENT = segment("context_file", Role.USER, "Environment", attrs={"name": "environment"})


def test_s0_01_persona_then_context_then_request() -> None:
    log = [persona("System Persona"), user("User Request"), ENVIRONMENT]
    envelope = build(log, counter=BYTES4)
    assert [(e.layer, text_of(e.segment.parts)) for e in envelope.sent] == [
        (Layer.SYSTEM, "System Persona"),
        (Layer.TURN, "Environment"),
        (Layer.PROMPT, "User Request"),
    ]


def test_s0_01_context_logged_after_a_changed_section_still_stands_before_the_request() -> None:
    log = [persona("System Persona"), user("Hello"), assistant("Hi")]
    before = build(log, counter=BYTES4)
    log += [user("User Request"), memory("Memory"), ENVIRONMENT]
    said = [text_of(e.segment.parts) for e in build(log, counter=BYTES4, ledger=before.ledger).sent]
    assert said == ["System Persona", "Hello", "Hi", "Environment", "User Request", "Memory"]


def test_s0_02_the_least_important_goes_first() -> None:
    envelope = capped(
        attached("persona", 100, priority=ESSENTIAL, pinned=True),
        attached("history", 200, priority=LOW),
        attached("notes", 150, priority=MEDIUM),
        ASK,
        limit=300,
    )
    assert kept(envelope) == ["persona", "notes"]
    assert attachment_tokens(envelope) == 250
    assert envelope.entry("history").why == "over the cap on attachments"
    assert envelope.notes == ()


def test_s0_02_priority_alone_protects_nothing() -> None:
    log = (attached("a", 100, priority=ESSENTIAL), attached("b", 100, priority=HIGH), ASK)
    assert kept(capped(*log, limit=150)) == ["a"]
    assert kept(capped(*log, limit=50)) == []


def test_s0_03_the_second_content_of_a_key_takes_the_first_place() -> None:
    hoisted = Options(layout=Layout(library="hoisted"))
    log = [file("a.md", "old"), file("b.md", "b"), user("1"), assistant("1"), file("a.md", "new"), user("2")]
    log += [assistant("2"), user("3")]
    envelope = build(log, counter=BYTES4, options=hoisted)
    shelf = [e for e in envelope.sent if e.layer is Layer.LIBRARY and e.segment.origin != "lamina"]
    assert [(e.segment.key, text_of(e.segment.parts)) for e in shelf] == [("a.md", "new"), ("b.md", "b")]


def test_s0_03_in_place_the_old_bytes_stay_and_the_new_content_follows() -> None:
    log = [file("a.md", "old"), user("1"), assistant("1"), file("a.md", "new"), user("2")]
    envelope = build(log, counter=BYTES4)
    texts = [text_of(e.segment.parts) for e in envelope.sent if e.segment.kind == "file"]
    assert texts == ["old", "new"]
    assert text_of(envelope.entry("a.md").segment.parts) == "new"


@pytest.mark.parametrize(("limit", "names"), [(200, ["a", "b"]), (199, ["b"])])
def test_s0_04_the_limit_itself_is_still_within_it(limit: int, names: list[str]) -> None:
    assert kept(capped(attached("a", 100), attached("b", 100), ASK, limit=limit)) == names


@pytest.mark.parametrize(
    ("limit", "names"), [(250, ["b", "c"]), (150, ["c"]), (300, ["a", "b", "c"]), (0, [])]
)
def test_s0_05_among_equals_the_one_added_first_goes_first(limit: int, names: list[str]) -> None:
    log = [attached(name, 100) for name in "abc"]
    assert kept(capped(*log, ASK, limit=limit)) == names


def test_s0_06_what_is_essential_stays_and_being_over_is_reported() -> None:
    log = (attached("rules", 500, pinned=True), attached("x", 10, priority=LOW), ASK)
    envelope = capped(*log, limit=300)
    assert kept(envelope) == ["rules"]
    (note,) = envelope.notes
    assert note.startswith("attachments take 500 tokens, over their cap of 300")


def test_the_cap_never_changes_what_was_sent() -> None:
    first = (attached("a", 100, priority=LOW), ASK)
    before = capped(*first, limit=150)
    after = capped(
        *first, assistant("Much."), attached("b", 100, priority=HIGH), ASK, limit=150, ledger=before.ledger
    )
    assert after.cut is None
    assert [e.sent for e in after.sent[: len(first)]] == [e.sent for e in before.sent]
    assert kept(after) == ["a"]


def test_a_file_over_the_cap_stays_out_after_a_restart() -> None:
    log = (attached("a", 100), attached("b", 100), ASK)
    ledger = Ledger.load(capped(*log, limit=150).ledger.dump())
    again = capped(*log, limit=1_000, ledger=ledger)
    assert kept(again) == ["b"]
    assert recall(log, "a") == (log[0],)


# tool results


RERUN = "…[re-run]"
LIMIT = 1024


def cut_short(segment: Segment, form: Form, content: Digest, limit: int) -> tuple[Part, ...]:  # noqa: ARG001
    """A result as the source system cuts it, in bytes; unlike there, never over the limit."""
    whole = segment.parts[0]
    if form is Form.FULL or not isinstance(whole, ToolResult):
        return segment.parts
    text = truncate_bytes(text_of(whole.content), limit) + RERUN
    return (ToolResult(id=whole.id, content=(Text(text),), name=whole.name, error=whole.error),)


def truncate_bytes(text: str, limit: int) -> str:
    return text.encode()[:limit].decode("utf-8", "ignore")


def old_results(view: OrderView) -> Iterator[Batch]:
    """All results but the newest five, whatever the room is."""
    results = [at for at, entry in enumerate(view.entries) if entry.role is Role.TOOL]
    free = frozenset(view.free())
    for at in results[:-5]:
        if at in free:
            yield (Move(at, Form.COMPACT, "old result", LIMIT),)


def exchanges(*texts: str) -> list[Segment]:
    """A question, and one call with its result for each text."""
    log = [user("Look around")]
    for number, text in enumerate(texts):
        log += [
            call("read", {"path": f"{number}.txt"}, id=f"c{number}"),
            result(text, id=f"c{number}", name="read"),
        ]
    return log


def trimmed(log: list[Segment], *, ledger: Ledger | None = None, due: bool = True) -> Envelope:
    """A build in which a cut, if it is `due`, keeps the last five results."""
    trigger = 0.02 if due else 1
    budget = Budget(window=100_000, reserve=0, trigger=trigger, target=0.001, keep_last=0)
    options = Options(order=old_results, wording=Wording(words={"tool_result": cut_short}))
    return build(log, budget=budget, counter=BYTES4, ledger=ledger or Ledger(), options=options)


def results(envelope: Envelope) -> list[str]:
    return [text_of(e.parts) for e in envelope.sent if e.role is Role.TOOL]


def shortened(envelope: Envelope) -> list[int]:
    return [number for number, text in enumerate(results(envelope)) if text.endswith(RERUN)]


def test_s0_11_an_old_result_shows_its_first_bytes_and_stays_recallable() -> None:
    log = exchanges("x" * 12_000, *"12345")
    envelope = trimmed(log)
    old = envelope.sent[2]
    assert old.tokens == 258
    assert results(envelope) == ["x" * LIMIT + RERUN, *"12345"]
    (whole,) = recall(log, handle(old.content))
    assert len(text_of(whole.parts)) == 12_000


@pytest.mark.parametrize(
    ("text", "size"),
    [("x" * 12_000, 1024), ("é" * 600, 1024), ("✅" * 400, 1023), ("🚀" * 300, 1024), ("ab", 2)],
)
def test_s0_12_cut_text_is_whole_characters_within_the_limit(text: str, size: int) -> None:
    cut = truncate_bytes(text, LIMIT)
    assert text.startswith(cut)
    assert len(cut.encode()) == size


@pytest.mark.parametrize(("count", "old"), [(7, [0, 1]), (6, [0]), (5, []), (0, [])])
def test_s0_13_the_newest_five_results_stay_whole(count: int, old: list[int]) -> None:
    envelope = trimmed(exchanges(*("y" * 9_000 for _ in range(count))))
    assert shortened(envelope) == old
    assert (envelope.cut is not None) == bool(old)


def test_s0_13_results_are_cut_at_a_cut_and_not_one_a_step() -> None:
    log = exchanges(*("y" * 9_000 for _ in range(7)))
    before = trimmed(log)
    log += [call("read", {"path": "7.txt"}, id="c7"), result("z" * 9_000, id="c7", name="read")]
    after = trimmed(log, ledger=before.ledger, due=False)
    assert after.cut is None
    assert shortened(after) == [0, 1]
    assert [e.sent for e in after.sent[: len(before.sent)]] == [e.sent for e in before.sent]


@pytest.mark.parametrize("voice", [Role.TOOL, Role.USER])
def test_s0_14_a_call_and_its_result_stay_a_pair_in_order(voice: Role) -> None:
    answer = segment("tool_result", voice, ToolResult(id="r1", name="read", content=(Text("done"),)))
    log = [system("Rules"), user("Read it"), call("read", {"path": "a"}, id="r1"), answer, assistant("Read.")]
    layout = Layout(exclude=Filter(layers=frozenset({Layer.SYSTEM})))
    envelope = build(log, counter=BYTES4, options=Options(layout=layout))
    assert [e.role for e in envelope.sent] == [Role.USER, Role.ASSISTANT, voice, Role.ASSISTANT]
    assert all(e.opens for e in envelope.sent)
    asked, answered = (e.parts[0] for e in envelope.sent[1:3])
    assert isinstance(asked, ToolCall)
    assert isinstance(answered, ToolResult)
    assert asked.id == answered.id == "r1"
    assert envelope.entries[0].why == "filtered: layer system excluded"


def test_s0_15_reasoning_is_left_out_whoever_said_it() -> None:
    thoughts = [
        segment("thinking", role, Thinking(text="hm"), key=role) for role in (Role.ASSISTANT, Role.USER)
    ]
    layout = Layout(exclude=Filter(kinds=frozenset({"thinking"})))
    envelope = build([user("Hello"), *thoughts], counter=BYTES4, options=Options(layout=layout))
    assert [text_of(e.parts) for e in envelope.sent] == ["Hello"]
    assert [e.why for e in envelope.entries[1:]] == ["filtered: kind thinking excluded"] * 2
