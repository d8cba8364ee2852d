"""Whatever names a message in a ledger, or has a copy of it in a log, goes with it, and nothing else does."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lamina import Ledger
from lamina.conversations.erased_records import ErasureTarget, digest_saying, erase_log, strip_ledger
from lamina.core import Cut
from lamina.core.values import Digest, Fold, Form, LedgerLine, Ref, Reminder
from lamina.formats.codec import decode, encode
from lamina.segments import call, result
from lamina.stores import MemoryStore, Where
from tests.sessions.talking import awaited

GONE, STAYS = Ref("kgone~1"), Ref("kstays~1")


def target_of(*stems: str) -> ErasureTarget:
    nothing: frozenset[Any] = frozenset()
    return ErasureTarget(
        sayings=nothing, stems=frozenset(stems), keys=nothing, texts=nothing, messages=1, call_ids=nothing
    )


LINE = LedgerLine(form=Form.STUB, why="old", wording=1, sent=Digest("d"))
FOLD = Fold(key="fold-1", covers=(STAYS,), text="quoted", cut=1)
REMINDER = Reminder(key="reminder-1", before=STAYS, sources=(STAYS,), text="quoted")
NAMING: dict[str, tuple[Ledger, Ledger]] = {
    "a line": (Ledger(lines={GONE: LINE, STAYS: LINE}), Ledger(lines={STAYS: LINE})),
    "a digest": (
        Ledger(folds=(msgspec.structs.replace(FOLD, covers=(STAYS, GONE)), FOLD)),
        Ledger(folds=(FOLD,)),
    ),
    "a rule": (
        Ledger(folds=(msgspec.structs.replace(FOLD, replaced_by=(GONE,)), FOLD)),
        Ledger(folds=(FOLD,)),
    ),
    "a reminder": (
        Ledger(reminders=(msgspec.structs.replace(REMINDER, sources=(STAYS, GONE)), REMINDER)),
        Ledger(reminders=(REMINDER,)),
    ),
    "its question": (Ledger(reminders=(msgspec.structs.replace(REMINDER, before=GONE),)), Ledger()),
    "a cut": (
        Ledger(cuts=(Cut(number=1, reason="r", first=GONE),)),
        Ledger(cuts=(Cut(number=1, reason="r"),)),
    ),
    "a repair": (Ledger(repairs={GONE: "empty", STAYS: "empty"}), Ledger(repairs={STAYS: "empty"})),
    "a section": (Ledger(promoted=(GONE, STAYS)), Ledger(promoted=(STAYS,))),
    "thinking": (Ledger(bound={GONE: Digest("p")}), Ledger()),
}


@pytest.mark.parametrize("name", NAMING)
def test_what_names_an_erased_message_leaves_the_ledger(name: str) -> None:
    ledger, stripped = NAMING[name]
    assert strip_ledger(ledger, target_of("kgone")) == stripped
    assert strip_ledger(ledger, target_of("kother")) is ledger


@awaited
async def test_a_result_keeps_no_argument_of_an_erased_call() -> None:
    asked = call("read", {"path": "a.txt"}, id="c1")
    results = [result(f"text {name}", id=name, attrs={"path": f"{name}.txt"}) for name in ("c1", "c2")]
    store, where = MemoryStore(), Where("", "support-42")
    await store.append(where, [encode(segment) for segment in (asked, *results)])
    page = await store.read(where)
    target = msgspec.structs.replace(
        target_of(), sayings=frozenset((digest_saying(asked),)), call_ids=frozenset(("c1",))
    )
    bodies = erase_log(page, target)
    left = decode([bodies.get(record.seq, record.body) for record in page.records])
    assert [segment.attrs for segment in left] == [{}, {}, {"path": "c2.txt"}]
