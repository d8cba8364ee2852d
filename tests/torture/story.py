"""What is written while a store is tortured: a conversation with known content, and what is built from it.

    story = Story()
    chapter = story.chapters[7]      a group: its records, state, idempotency key, and the request after it

A chapter's state is the ledger of the build after it. `twin` is the request that is built next by a process
that never crashed; `after` builds the same from what a store gave back. Neither knows a store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from random import Random

import msgspec

from lamina.core.build import build
from lamina.core.hashing import canonical_json
from lamina.core.memo import BuildMemo
from lamina.core.values import Budget, Ledger, RequestHead, Segment
from lamina.dialects import DIALECTS
from lamina.formats.codec import decode, encode
from lamina.segments import assistant, call, file, result, system, user
from lamina.stores import Once, RecordPage

LENGTH = 48
"""Chapters of one conversation: enough for several cuts, few enough to build in a moment."""

BUDGET = Budget(window=4_000, reserve=500, keep_last=2)
HEAD = RequestHead(parameters={"model": "claude-opus-4-6", "max_tokens": 400})

_WORDS = (
    "river stone lamp orchard ledger copper window harbour thread winter signal garden paper meadow".split()
)


class Chapter(msgspec.Struct, frozen=True, kw_only=True):
    """One group. `start` records stand before it; `twin` is the digest of the request built after it."""

    start: int
    records: tuple[bytes, ...]
    state: bytes
    once: Once
    twin: str

    @property
    def end(self) -> int:
        return self.start + len(self.records)


class Story:
    """The same conversation for whoever asks for the same seed."""

    def __init__(self, *, length: int = LENGTH, seed: int = 0) -> None:
        self.chapters = _chapters(length, seed)
        self.ends = {chapter.end: number for number, chapter in enumerate(self.chapters, 1)}

    def __len__(self) -> int:
        return len(self.chapters)

    def told(self, page: RecordPage) -> int:
        """How many chapters a page holds, which has to hold whole ones, in order, with their own state."""
        told = self.ends.get(page.head.count, 0)
        assert page.head.count in self.ends or not page.head.count, f"{page.head.count} records: half a group"
        bodies = [body for chapter in self.chapters[:told] for body in chapter.records]
        assert [record.seq for record in page.records] == list(range(len(bodies))), (
            "places are not 0, 1, 2 ..."
        )
        for record, body in zip(page.records, bodies, strict=True):
            assert record.body == body, f"record {record.seq} is not what was written"
        state = self.chapters[told - 1].state if told else b""
        assert page.head.state == state, f"the state is not that of group {told - 1}"
        if told:
            twin = self.chapters[told - 1].twin
            assert after(page) == twin, f"the request after group {told - 1} is not that of the twin"
        return told


def after(page: RecordPage) -> str:
    """The digest of the request that is built from what a store gave back."""
    ledger = Ledger.load(msgspec.json.decode(page.head.state))
    return _request(decode(record.body for record in page.records), ledger)


@cache
def _chapters(length: int, seed: int) -> tuple[Chapter, ...]:
    dice, memo, ledger = Random(seed), BuildMemo(), Ledger()  # noqa: S311
    log: list[Segment] = []
    chapters: list[Chapter] = []
    for number in range(length):
        group, start = _group(number, dice), len(log)
        log += group
        ledger = build(log, head=HEAD, budget=BUDGET, ledger=ledger, memo=memo).ledger
        records, state = tuple(map(encode, group)), canonical_json(ledger.dump())
        digest = hashlib.sha256(b"\0".join((*records, state))).digest()
        once = Once(key=f"chapter-{seed}-{number}", digest=digest)
        twin = _request(log, ledger)
        chapters.append(Chapter(start=start, records=records, state=state, once=once, twin=twin))
    return tuple(chapters)


def _request(log: Sequence[Segment], ledger: Ledger) -> str:
    envelope = build(log, head=HEAD, budget=BUDGET, ledger=ledger)
    request = DIALECTS["anthropic"].wire.render(envelope)
    return hashlib.sha256(canonical_json([request, envelope.ledger.dump()])).hexdigest()


def _group(number: int, dice: Random) -> list[Segment]:
    """A prompt, now and then with an attachment, or a step: one to three segments."""
    said = f"{number}: {_prose(dice, 12)}"
    if number == 0:
        return [system("You keep an archive."), user(said, key=f"ask-{number}")]
    if number % 8 == 0:
        attached = [file(f"docs/{number}.md", _prose(dice, 150))] if number % 16 else []
        return [user(said, key=f"ask-{number}"), *attached]
    if number % 8 == 7:
        return [assistant(said)]
    id_ = f"call-{number}"
    text = _prose(dice, dice.choice((4, 60, 240)))
    return [assistant(said), call("look", {"at": number}, id=id_), result(text, id=id_, name="look")]


def _prose(dice: Random, words: int) -> str:
    return " ".join(dice.choices(_WORDS, k=words))
