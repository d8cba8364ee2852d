"""Answers "why did my cache miss?": where and why the later of two requests stops continuing the earlier.

    difference = diff(before, after)                                       # what the bytes say
    difference = diff(before, after, rules=rules_for(model), gap=400)      # what the provider's cache does
    print(difference.sentence, difference.place, difference.lost, difference.advice)

`stream_causes` reads the cause from the blocks, and `cache_causes` adds what the rules of a cache say. What
lamina itself did is known from its envelopes, so nothing has to be guessed from text. `values` has the closed
set of causes. No model is asked and nothing is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from lamina.caches import CacheRules
from lamina.caches.prefix_path import count_common_items
from lamina.caches.stream import StreamBlock
from lamina.core.digests import is_digest
from lamina.core.envelope import Envelope
from lamina.core.epochs import FILE_CHANGED, MEMORY_CHANGED, SETTINGS_CHANGED, TURN_SCOPED
from lamina.core.hashing import digest
from lamina.core.tokens import Counter
from lamina.core.values import Entry, Layer
from lamina.diagnose.cache_causes import judge_cache
from lamina.diagnose.compared import ComparedRequest, weigh_request
from lamina.diagnose.stream_causes import find_stream_cause
from lamina.diagnose.values import CAUSES, Cause, Difference, write_sentence
from lamina.dialects.port import Dialect

CAUSES_OF_CUTS = {
    FILE_CHANGED: "file changed",
    MEMORY_CHANGED: "memory changed",
    SETTINGS_CHANGED: "settings changed",
    TURN_SCOPED: "turn over",
}
"""Cuts whose reason says what the blocks cannot show."""


def diff(
    before: Any,
    after: Any,
    *,
    rules: CacheRules | None = None,
    counter: Counter | None = None,
    gap: float | None = None,
    tokens: int | None = None,
    dialect: str | Dialect | None = None,
) -> Difference:
    """Find where `after` stops being a continuation of `before`, why, what that loses, and what to do.

    Both are requests of a provider, fitted requests, envelopes or streams. With `rules` the answer is about
    that cache: its markers, lifetimes and minimum, and the settings that it depends on. `gap` is the time
    between the two in seconds. Without rules only what was sent is compared. `tokens` is the input that the
    provider reported for `before`; counts are scaled by it. `counter` counts each block.
    """
    if rules is not None:
        before = _request_as_sent(before)
        after = _request_as_sent(after)
    old = weigh_request(before, dialect=dialect, counter=counter)
    new = weigh_request(after, dialect=dialect, counter=counter, earlier=old)
    if rules is None:
        cause = _find_cause(old, new, compare_keys=True)
        return _describe(old, new, cause, _count_amounts(old, cause), tokens)
    cause = _find_cause(old, new, compare_keys=bool(rules.key))
    verdict = judge_cache(old.counted_stream, new.counted_stream, cause, rules, gap=gap or 0.0)
    amounts = Amounts(verdict.read, verdict.lost, verdict.held, verdict.price)
    difference = _describe(old, new, verdict.cause, amounts, tokens)
    advice = rules.advice.get(difference.cause)
    if advice:
        return msgspec.structs.replace(difference, advice=advice)
    return difference


def _request_as_sent(value: Any) -> Any:
    """The request inside a fitted request: a cache sees its markers and settings, an envelope has none.

    Any other value is compared as it is.
    """
    request = getattr(value, "request", None)
    if isinstance(request, Mapping):
        return request
    return value


def _find_cause(before: ComparedRequest, after: ComparedRequest, *, compare_keys: bool) -> Cause:
    """What differs in what was sent."""
    old = before.stream
    new = after.stream
    # what holds for the whole request comes first: another model has another cache, whatever its blocks are
    for cause_name, old_value, new_value in (
        ("dialect changed", old.dialect, new.dialect),
        ("model changed", old.model, new.model),
        ("cached content changed", old.cached, new.cached),
    ):
        if old_value != new_value:
            return Cause(cause_name, 0, f"{old_value!r} is now {new_value!r}")
    if compare_keys and old.key != new.key:
        return _explain_key(old.key, new.key)
    cause = find_stream_cause(old, new)
    if before.envelope and after.envelope and cause.block >= before.tools:
        return _prefer_own_cause(before.envelope, after.envelope, cause, before.tools)
    return cause


def _prefer_own_cause(before: Envelope, after: Envelope, cause: Cause, tools: int) -> Cause:
    """The cause that lamina itself knows of, if it has one, instead of the cause that the blocks show.

    Blocks that were lowered look edited. The envelope records that lamina lowered them.
    """
    if tenant_changed(before, after):
        return Cause("tenant changed", 0)
    own_cause = find_own_cause(before, after, cause.block - tools)
    if own_cause:
        return cause._replace(cause=own_cause, detail="")
    return cause


def _explain_key(old: str, new: str) -> Cause:
    """The cause for two different keys. A key may end with the salt of a tenant: `mykey salt=abc`."""
    old_key, _, old_salt = old.partition("salt=")
    new_key, _, new_salt = new.partition("salt=")
    if old_salt != new_salt:
        return Cause("tenant changed", 0)
    return Cause("key changed", 0, f"{old_key!r} is now {new_key!r}")


class Amounts(NamedTuple):
    """Tokens of the earlier request, and what the lost ones cost. `Difference` explains each of them."""

    unchanged: int
    lost: int
    cached: int | None = None
    price: float | None = None

    def scaled(self, counted: int, reported: int) -> Amounts:
        """The same, if the provider reported `reported` tokens where we counted `counted`.

        The two amounts of tokens still add up: what is lost is the rest.
        """
        unchanged = self.unchanged * reported // counted
        all_tokens = (self.unchanged + self.lost) * reported // counted
        cached = self.cached
        if cached is not None:
            cached = cached * reported // counted
        price = self.price
        if price is not None:
            price = price * reported / counted
        return Amounts(unchanged=unchanged, lost=all_tokens - unchanged, cached=cached, price=price)


def _count_amounts(before: ComparedRequest, cause: Cause) -> Amounts:
    """The amounts without the rules of a cache: what stands before the difference, and the rest.

    The framing of a request stands after its tools. It is unchanged only if they are.
    """
    if cause.cause == "none":
        return Amounts(before.total, 0)
    unchanged = sum(before.counts[: cause.block])
    if cause.block >= before.tools and cause.cause not in _BEFORE_FRAMING:
        unchanged += before.head
    return Amounts(unchanged, max(before.total - unchanged, 0))


_BEFORE_FRAMING = frozenset(
    (
        "dialect changed",
        "model changed",
        "tenant changed",
        "key changed",
        "cached content changed",
        "tools changed",
        "tools reordered",
        "tool added",
        "tool removed",
        "web search changed",
    )
)
"""Causes that take effect before the end of the tools, and so before the framing of the request."""


def _describe(
    before: ComparedRequest, after: ComparedRequest, cause: Cause, amounts: Amounts, tokens: int | None
) -> Difference:
    """The result: the cause with its places, amounts, sentence and advice.

    If the provider reported the tokens of the earlier request, the amounts are scaled to that.
    """
    old_block = _block_at(before, cause.block)
    new_block = _block_at(after, cause.block)
    byte = 0
    if old_block and new_block:
        byte = count_common_items(old_block.data, new_block.data)
    if tokens is not None and before.total:
        amounts = amounts.scaled(before.total, tokens)
    # nothing differs in a request that goes on, and `entry` names its first new block
    old_place = ""
    if old_block and cause.cause != "none":
        old_place = old_block.place
    return Difference(
        cause=cause.cause,
        at=max(cause.block - before.tools, 0),
        byte=byte,
        offset=sum(len(block.data) for block in before.stream.blocks[: cause.block]) + byte,
        entry=new_block.place if new_block else "",
        was=old_place,
        name=cause.name,
        kept=amounts.unchanged,
        lost=amounts.lost,
        cached=amounts.cached,
        price=amounts.price,
        sentence=write_sentence(cause),
        advice=CAUSES[cause.cause].advice,
        settings=_find_changed_settings(before, after),
    )


def _block_at(request: ComparedRequest, index: int) -> StreamBlock | None:
    """The block with this number; None after the last one."""
    blocks = request.stream.blocks
    if index < len(blocks):
        return blocks[index]
    return None


def _find_changed_settings(before: ComparedRequest, after: ComparedRequest) -> tuple[str, ...]:
    """The names of parameters that differ, in the order of the alphabet.

    One that only one of the requests has counts as different.
    """
    old = before.stream.settings
    new = after.stream.settings
    changed = [name for name in {*old, *new} if old.get(name) != new.get(name)]
    return tuple(sorted(changed))


def tenant_changed(before: Envelope, after: Envelope) -> bool:
    """Whether the salt differs. The root hashes salt and tools, so with equal tools it is the salt.

    A salt keeps the caches of two tenants apart.
    """
    return before.root != after.root and digest(before.head.tools) == digest(after.head.tools)


def find_own_cause(before: Envelope, after: Envelope, index: int) -> str:
    """The cause at the sent entry `index`, "" if lamina did nothing there.

    An entry that a cut lowered is a "cut" in the request of that cut. A later request, compared with one from
    before the cut, has it as "lowered".
    """
    if index >= min(len(before.lasting), len(after.sent)):
        return ""
    if after.cut and after.cut.reason in CAUSES_OF_CUTS:
        return CAUSES_OF_CUTS[after.cut.reason]
    old = before.lasting[index]
    new = after.sent[index]
    same_entries = [entry for entry in after.entries if entry.ref == old.ref]
    if any(entry.why.startswith("covered by ") for entry in same_entries):
        return "summarised"
    is_lowered = _is_lowered(old, same_entries)
    # a ledger counts an edited history as a cut too; such a cut lowers nothing itself
    if is_lowered and after.cut and after.cut.lowered:
        return "cut"
    return _find_cause_of_entry(old, new, is_lowered=is_lowered)


def _find_cause_of_entry(old: Entry, new: Entry, *, is_lowered: bool) -> str:
    """The cause if the request of the later envelope made no cut at this entry."""
    layers = (old.layer, new.layer)
    if Layer.SYSTEM in layers:
        return ""  # the blocks show what changed in the system text
    if Layer.LIBRARY in layers:
        return "library changed"
    if is_lowered:
        return "lowered"
    if _is_same_attachment(old, new):
        return "attachment changed"
    return ""


def _is_same_attachment(old: Entry, new: Entry) -> bool:
    """Whether both are the same attachment, by kind and key.

    What users and assistants say has no key of its own, so it is no attachment.
    """
    if old.segment.kind in ("user", "assistant") or not old.segment.key:
        return False
    return (old.segment.kind, old.segment.key) == (new.segment.kind, new.segment.key)


def _is_lowered(old: Entry, same_entries: list[Entry]) -> bool:
    """Whether the entry is sent in a lower form now, or is a digest that a cut joined or wrote anew."""
    if is_digest(old):
        return all(entry.sent != old.sent for entry in same_entries)
    return any(entry.form < old.form for entry in same_entries)
