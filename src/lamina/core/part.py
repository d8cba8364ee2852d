"""Where and why two requests part: the first entry and byte that differ, and what caused it.

A prefix cache stops at the first byte that differs. `part` finds it by the chained hashes, so two long
requests are compared in one pass, and says in one word what happened there.
"""

from __future__ import annotations

import msgspec

from lamina.core.envelope import Envelope
from lamina.core.hashing import canonical, digest
from lamina.core.values import Cut, Entry, Form, Layer


class Parting(msgspec.Struct, frozen=True, kw_only=True):
    """`cause` is "none" where `after` continues `before`; then `entry` is the first new one, if any.

    `at` counts sent entries, `byte` is the offset inside the entry's canonical bytes, `kept` and `lost`
    are tokens of `before` that stand unchanged before the parting, and those after it.
    """

    cause: str
    at: int
    byte: int = 0
    entry: str = ""
    was: str = ""
    kept: int = 0
    lost: int = 0

    @property
    def continues(self) -> bool:
        return self.cause == "none"


def part(before: Envelope, after: Envelope) -> Parting:
    """Where `after` stops being a continuation of `before`, and why."""
    old, new = before.sent, after.sent
    if digest(before.head.tools) != digest(after.head.tools):
        return Parting(cause=_tools(before, after), at=0, byte=_tool_byte(before, after), lost=before.tokens)
    if before.root != after.root:
        return Parting(cause="tenant changed", at=0, lost=before.tokens)
    at = _common(old, new)
    kept = before.account.tools + before.account.request + sum(e.tokens for e in old[:at])
    if at == len(old):
        return Parting(cause="none", at=at, entry=new[at].ref if at < len(new) else "", kept=before.tokens)
    was, now = old[at], new[at] if at < len(new) else None
    return Parting(
        cause=_cause(before, after, was, now), at=at, byte=_byte(was, now), entry=now.ref if now else "",
        was=was.ref, kept=kept, lost=before.tokens - kept,
    )  # fmt: skip


def _common(old: tuple[Entry, ...], new: tuple[Entry, ...]) -> int:
    """How many sent entries stand the same; the chain makes it a binary search."""
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if old[middle - 1].prefix == new[middle - 1].prefix else (low, middle - 1)
    return low


def _cause(before: Envelope, after: Envelope, was: Entry, now: Entry | None) -> str:
    if now is None:
        return "rewound"
    if _fitted(after.cut) and _lowered(after, was):
        return "cut"
    for layer, cause in ((Layer.SYSTEM, "system changed"), (Layer.LIBRARY, "library changed")):
        if layer in (was.layer, now.layer):
            return cause
    return "lowered" if _lowered(after, was) else _edit(before, after, was, now)


def _edit(before: Envelope, after: Envelope, was: Entry, now: Entry) -> str:
    """What the application did to its log."""
    if was.segment.key and was.segment.key == now.segment.key:
        return "attachment changed" if was.segment.kind == now.segment.kind != "user" else "edited"
    there = {e.ref for e in after.entries}
    if was.ref in there and now.ref in {e.ref for e in before.entries}:
        return "reordered"
    return "inserted" if was.ref in there else "edited"


def _fitted(cut: Cut | None) -> bool:
    return cut is not None and cut.lowered > 0


def _lowered(after: Envelope, was: Entry) -> bool:
    """Whether the entry that stood here is sent in a lower form now."""
    return any(e.ref == was.ref and e.form < was.form for e in after.entries if e.form is not Form.FULL)


def _tools(before: Envelope, after: Envelope) -> str:
    old, new = ({canonical(tool) for tool in e.head.tools} for e in (before, after))
    return "tools reordered" if old == new else "tools changed"


def _tool_byte(before: Envelope, after: Envelope) -> int:
    return _first_difference(canonical(before.head.tools), canonical(after.head.tools))


def _byte(was: Entry, now: Entry | None) -> int:
    return _first_difference(canonical(was.parts), canonical(now.parts)) if now else 0


def _first_difference(one: bytes, other: bytes) -> int:
    """The first offset at which two byte strings differ, by halving: comparison of slices is fast."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low
