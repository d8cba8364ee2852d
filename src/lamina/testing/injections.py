"""Text that wants to be more than text, in every place where it reaches a model: a catalogue to try.

    @pytest.mark.parametrize("case", injections(MY_DIALECT), ids=str)
    def test_my_dialect_against_injected_text(case):
        case()

Each attack stands in every place of one conversation at once, and that is rendered whole, lowered,
folded and hoisted, in every wording. What must hold is structure: `faults`, `loose` and `lost` list what an
attack achieved. Whether a model believes what it reads inside a fence is not judged here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from lamina import segments
from lamina.core.arrange import Cap, Layout
from lamina.core.build import build
from lamina.core.envelope import Envelope
from lamina.core.hashing import content_digest, handle, parts_digest
from lamina.core.kinds import KINDS, REFERENCE_TAGS, row
from lamina.core.options import Options
from lamina.core.recall import identified, names
from lamina.core.text.tags import tag
from lamina.core.values import (
    Budget,
    Entry,
    Form,
    Ledger,
    Part,
    Role,
    Segment,
    Text,
    ToolCall,
    ToolResult,
)
from lamina.core.wording import PLAIN, TAGGED, Wording, guard, text_of, unguard
from lamina.dialects.port import Dialect, Request
from lamina.errors import BudgetExceeded
from lamina.formats.codec import decode, encode
from lamina.testing.attacks import ATTACKS
from lamina.testing.conformance import MODELS, Conformance, plain_head

WORDINGS: Mapping[str, Wording] = {
    "plain": PLAIN,
    "tagged": TAGGED,
    "without handles": Wording(handles=False),
}
"""Every way in which lamina words segments."""

LOWERED = tuple(Layout(attachments=Cap(tokens=0, form=form)) for form in (Form.COMPACT, Form.STUB))
HOISTED = Layout(library="hoisted")

DULL = "The lamp is lit at dusk and put out at dawn.\n" * 12
"""Text that wants nothing, long enough that lowering it pays."""


def injections(*subjects: Dialect, attacks: Mapping[str, str] = ATTACKS) -> list[Conformance]:
    """One case for each attack, on all of these dialects."""
    return [
        Conformance(name, partial(_withstood, subjects, text, turn=turn))
        for turn, (name, text) in enumerate(attacks.items())
    ]


def _withstood(subjects: Sequence[Dialect], attack: str, *, turn: int) -> None:
    """In every wording whole; lowered and hoisted in one of them, since that takes longer."""
    log, wordings = conversation(attack), list(WORDINGS.values())
    assert lost(log) == []
    for at, wording in enumerate(wordings):
        for envelope in envelopes(log, wording, lowered=at == turn % len(wordings)):
            assert loose(envelope, wording) == []
            for subject in subjects:
                assert (subject.name, faults(envelope, subject)) == (subject.name, [])


def conversation(attack: str, *more: str) -> tuple[Segment, ...]:
    """A log with a hostile text in every place; with several, they take turns."""
    texts = (attack, *more)
    log = [segments.system("Answer in one sentence.")]
    for at, place in enumerate(PLACES.values()):
        log += place(texts[at % len(texts)])
    return (*log, segments.user("And now?"))


def envelopes(
    log: Sequence[Segment], wording: Wording = PLAIN, *, lowered: bool = True
) -> Iterator[Envelope]:
    """The conversation as it is sent: whole, and where asked also lowered, folded and hoisted."""
    whole = build(log, options=Options(wording=wording))
    yield whole
    if lowered:
        for layout in (*LOWERED, HOISTED):
            budget = Budget(window=whole.tokens * 10, reserve=0, largest=0.001)
            yield build(log, options=Options(wording=wording, layout=layout), budget=budget)
        yield _folded(log, whole.tokens // 4, Options(wording=wording), whole.ledger)


def _folded(log: Sequence[Segment], window: int, options: Options, ledger: Ledger) -> Envelope:
    budget = Budget(window=window, reserve=0, keep_last=1)
    try:
        return build(log, options=options, budget=budget, ledger=ledger)
    except BudgetExceeded as full:
        return _folded(log, full.floor, options, ledger)


def faults(envelope: Envelope, subject: Dialect) -> list[str]:
    """What injected text achieved in a request of this dialect: nothing, if all is well."""
    head = subject.own_head(plain_head(MODELS.get(subject.name, "any"))).head
    envelope = msgspec.structs.replace(envelope, head=head)
    request = subject.render(envelope)
    found = [f"{broken.rule} at {broken.place}" for broken in subject.check(request)]
    if json.loads(json.dumps(request)) != request:
        found.append("the request is not the same after it went through JSON")
    log, dull = subject.parse(request).log, subject.render(_dull(envelope))
    if _shape(log) != _shape(subject.parse(dull).log) or _blocks(subject, request) != _blocks(subject, dull):
        found.append("the request is read as another conversation")
    return found + _unsaid(envelope, log)


def loose(envelope: Envelope, wording: Wording = PLAIN) -> list[str]:
    """Which text left its fence, or its line: none, if all is well."""
    return [
        f"{entry.segment.kind} {entry.form}: {fault}"
        for entry in envelope.sent
        for fault in _escapes(entry, wording)
    ]


def lost(log: Sequence[Segment]) -> list[str]:
    """What does not come back exactly by its handle, after it was kept in a store."""
    kept = names(identified(decode(encode(segment) for segment in log)))
    return [
        segment.key or segment.kind
        for segment in log
        if kept[handle(content_digest(segment, parts_digest(segment.role, segment.parts)))].parts
        != segment.parts
    ]


def _dull(envelope: Envelope) -> Envelope:
    """The same request, in the same forms, with nothing said in it."""
    entries = tuple(
        msgspec.structs.replace(entry, parts=tuple(map(_silent, entry.parts))) for entry in envelope.entries
    )
    return msgspec.structs.replace(envelope, entries=entries)


def _silent(part: Part) -> Any:
    match part:
        case Text():
            return Text("x")
        case ToolCall():
            return msgspec.structs.replace(part, arguments="{}")
        case ToolResult():
            return msgspec.structs.replace(part, content=(Text("x"),))
    return part


def _shape(log: Sequence[Segment]) -> list[tuple[object, ...]]:
    """Who says what sort of thing, in which message, as the dialect itself reads it."""
    return [(one.role, one.kind, one.joins, *map(_sort, one.parts)) for one in log]


def _blocks(subject: Dialect, request: Request) -> list[tuple[object, ...]]:
    """The same, as a prefix cache sees it."""
    blocks = subject.stream(request).blocks
    return [(block.sort, block.role, block.name, block.opens) for block in blocks]


def _sort(part: Part) -> tuple[object, ...]:
    match part:
        case ToolCall(id=id_, name=name):
            return ("call", id_, name)
        case ToolResult(id=id_, error=error):
            return ("result", id_, error)
    return (type(part).__name__,)


def _unsaid(envelope: Envelope, log: Sequence[Segment]) -> list[str]:
    """What is not read in the voice in which it was sent."""
    heard = dict.fromkeys(Role, "")
    for segment in log:
        heard[segment.role] += f"\n{text_of(segment.parts)}"
    return [
        f"{entry.segment.kind} is not read as what {entry.role} says"
        for entry in envelope.sent
        if not isinstance(entry.parts[0], ToolCall)
        if not any(text_of(entry.parts) in heard[role] for role in _VOICES[entry.role])
    ]


_VOICES: Mapping[Role, tuple[Role, ...]] = {
    Role.SYSTEM: (Role.SYSTEM, Role.USER),
    Role.USER: (Role.USER,),
    Role.ASSISTANT: (Role.ASSISTANT,),
    Role.TOOL: (Role.TOOL, Role.USER),
}
"""In which voice something may be read: its own, or the user's where an API has no other place for it."""


_NAMES = "|".join(sorted({kind.tag for kind in KINDS.values()} | set(REFERENCE_TAGS)))
_TAG = re.compile(rf"<[ \t]*(/?)\s*({_NAMES})\b", re.IGNORECASE)
_HANDLE = re.compile(r'recall\("([^"]*)"\)')


def _escapes(entry: Entry, wording: Wording) -> Iterator[str]:
    """How the text of an entry leaves its fence, read with a pattern that is not the guard's."""
    text = text_of(entry.parts)
    if text.startswith("[") and entry.form is Form.STUB:
        own = [handle(entry.content)] if wording.handles else []
        if _HANDLE.findall(text) != own or len(text.splitlines()) != 1:
            yield f"a stub says more than it should: {text!r:.200}"
    elif isinstance(entry.parts[0], Text) and _fenced(entry.segment, wording):
        tags = _TAG.findall(text)
        name = tags[0][1] if tags else ""
        if tags != [("", name), ("/", name)] or not (
            text.startswith(f"<{name}") and text.endswith(f"</{name}>")
        ):
            yield f"it leaves its fence: {text!r:.200}"
        if entry.form is Form.FULL and not _held(entry.segment, text):
            yield f"it does not come back from its fence: {text!r:.200}"


def _fenced(segment: Segment, wording: Wording) -> bool:
    """Whether text stands in a tag: everything but messages, and what lamina says on its own account."""
    if segment.origin == "lamina":
        return segment.kind == "digest"
    kind = row(wording.kinds, segment)
    return wording.tagged or kind.attachment or kind.section or segment.kind == "progress_summary"


def _held(segment: Segment, text: str) -> bool:
    """Whether what went into a fence can be taken out of it again, exactly."""
    ours = segment.origin == "lamina" or text.startswith(
        ("<reference", "<prior_context", "<progress_summary")
    )
    said = text_of(segment.parts)
    return ours or said in unguard(text) or said in unguard(text, extra=("content",))


def _summary(text: str) -> list[Segment]:
    """As `lamina.summaries` writes one: a model's words behind a fence."""
    fenced = tag("progress_summary", {"original_count": "1"}, guard(f"{text}\n{DULL}"))
    return [segments.user("An old question.", key="old"), segments.summary(fenced, covers=["nothing"])]


def _answered(text: str, *, error: bool = False, name: str = "read_file", **more: Any) -> list[Segment]:
    id_ = f"call_{name}_{error}"
    return [
        segments.user("Look it up."),
        segments.call(name, {"path": "a.py"}, id=id_, joins=False),
        segments.result(text, id=id_, name=name, error=error, **more),
        segments.assistant("I see."),
    ]


def _called(text: str) -> list[Segment]:
    return [
        segments.user("Write it."),
        segments.call(
            "write_file", {"path": "b.py", "text": f"{text}\n{DULL}", text: 1}, id="c_w", joins=False
        ),
        segments.result("Written.", id="c_w", name="write_file"),
        segments.assistant("Done."),
    ]


def _late(text: str) -> list[Segment]:
    return [
        segments.user("Start it."),
        segments.call("start", {}, id="c_late", joins=False),
        segments.user("Are you there?"),
        segments.assistant("Yes."),
        segments.result(f"{text}\n{DULL}", id="c_late", name="start"),
    ]


def _body(text: str) -> str:
    return f"{text}\n{DULL}{text}"


PLACES: Mapping[str, Callable[[str], list[Segment]]] = {
    "persona": lambda text: [segments.persona(text)],
    "project": lambda text: [segments.project(text, attrs={"name": text})],
    "memory": lambda text: [segments.memory(text)],
    "what a model remembered": lambda text: [
        segments.segment("context_file", Role.USER, text, attrs={"name": text}, key="memory:told")
    ],
    "file": lambda text: [segments.file("a.txt", _body(text))],
    "note": lambda text: [segments.note("n.md", _body(text))],
    "attached again": lambda text: [segments.note("n.md", _body(text))],
    "document": lambda text: [segments.pdf("d.pdf", _body(text))],
    "page": lambda text: [segments.url("https://example.org/a", _body(text))],
    "tab": lambda text: [segments.web_tab("https://example.org/b", _body(text), title="B")],
    "selection": lambda text: [segments.selected_text(_body(text), path="s.md")],
    "search result": lambda text: [segments.excerpt(_body(text), source="s.md", place="1-9")],
    "file name": lambda text: [segments.file(text, DULL + "1")],
    "title": lambda text: [segments.web_tab(f"https://example.org/{text}", DULL + "2", title=text)],
    "source and place": lambda text: [segments.excerpt(DULL + "3", source=text, place=text)],
    "instructions in a folder": lambda text: [segments.segment("agents_md", Role.USER, _body(text))],
    "result": lambda text: _answered(_body(text)),
    "failed result": lambda text: _answered(_body(text), error=True),
    "named result": lambda text: _answered(DULL + "4", attrs={"path": text}, name="read"),
    "arguments": _called,
    "late result": _late,
    "reply": lambda text: [segments.user("Say it."), segments.assistant(_body(text))],
    "question": lambda text: [segments.user(_body(text))],
    "summary": _summary,
    "sub-agent": lambda text: [segments.segment("subagent_result", Role.USER, _body(text))],
}
"""Where text comes from: for each place the segments that bring it, with the text in it."""
