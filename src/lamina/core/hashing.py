"""Canonical bytes, digests and the chained prefix hash: the same in every process and on every machine.

The chain is what a prefix cache sees: equal hash means equal whole prefix, from the first tool
definition on. A salt per tenant is at its root, so that two tenants never share a prefix hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from lamina.core.values import Digest, Part, Ref, Role, Segment
from lamina.errors import BadInput

HANDLE_BITS = 80
"""Bits of a handle: a second text with the handle of a first one cannot be computed."""

_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"
_TEN_BITS = [first + second for first in _BASE32 for second in _BASE32]

_ENCODER = msgspec.json.Encoder(order="deterministic")


def canonical_json(value: Any) -> bytes:
    """Compact JSON with sorted keys. Raises `BadInput` for a value that JSON or UTF-8 cannot carry."""
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError as error:
        raise BadInput(
            f"text has a lone surrogate at character {error.start}",
            hint='replace it first: text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")',
        ) from None
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        hint = "use str, int, float, bool, None, list and dict"
        raise BadInput(f"not a JSON value: {error}", hint=hint) from None


def is_same_json(value: Any, other: Any) -> bool:
    """Whether two values that are equal to Python are the same JSON too: types, and the order of keys.

    `{"a": 1}` equals `{"a": true}` and `{"a": 1.0}`, and is the same JSON as neither.
    """
    if value is other:
        return True
    value_type = type(value)
    if value_type is not type(other):
        return False
    if value_type is dict:
        has_same_order = list(value) == list(other)
        return has_same_order and all(map(is_same_json, value.values(), other.values()))
    if value_type in (list, tuple):
        return all(map(is_same_json, value, other))
    if isinstance(value, msgspec.Struct):
        return all(map(is_same_json, msgspec.structs.astuple(value), msgspec.structs.astuple(other)))
    return True


def digest(value: Any) -> Digest:
    """The digest of any JSON value."""
    return Digest(sha256(canonical_json(value)).hexdigest())


def parts_digest(role: Role, parts: Sequence[Part]) -> Digest:
    """What is sent of one entry: its voice and its parts."""
    return digest((role, parts))


def content_digest(segment: Segment, sent_in_full: Digest) -> Digest:
    """What a segment is: its parts, kind and shown attributes; not its time, meta or place.

    The parts enter by the digest that they have when sent in full, so their bytes are hashed once.
    """
    return digest((segment.kind, segment.attrs, sent_in_full))


def handle(content: Digest) -> str:
    """The short name by which a segment can be recalled, such as `kmzxw6ytboi4dcmrt`. It never expires."""
    # `base64.b32encode` is written in Python, and every segment of every request has a handle.
    first, last = divmod(int(content[: HANDLE_BITS // 4], 16), 1 << HANDLE_BITS // 2)
    pairs = (
        _TEN_BITS[first >> 30],
        _TEN_BITS[first >> 20 & 1023],
        _TEN_BITS[first >> 10 & 1023],
        _TEN_BITS[first & 1023],
        _TEN_BITS[last >> 30],
        _TEN_BITS[last >> 20 & 1023],
        _TEN_BITS[last >> 10 & 1023],
        _TEN_BITS[last & 1023],
    )
    return "k" + "".join(pairs)


def stem_of(ref: Ref) -> str:
    """What a ref says of a segment itself; the rest names what comes before it, which may change."""
    return ref.rpartition("~")[0]


def extend_chain(before: Digest, sent: Digest, *, opens: bool) -> Digest:
    """One link: the same parts in a message of their own, or continuing one, are different bytes.

    The joint tells the two apart: `+` opens a message, `~` continues one.
    """
    joint = "+" if opens else "~"
    return Digest(sha256(f"{before}{joint}{sent}".encode()).hexdigest())


class NamedSegment(NamedTuple):
    """A segment with its ref and the digest of its content."""

    ref: Ref
    content: Digest
    segment: Segment


SETTLED_AT = 256
"""Names and ids that are copied with each build of a growing log. More of them are settled: the whole dict is
copied once for so many, and not with each build."""


class SegmentNames(msgspec.Struct):
    """Gives the segments of a log their refs, one after the other.

    A ref is made of a segment's key, its content, and the content of what was said before it. So it does not
    change when a client cuts off the front of its history, except that of the first segment which is left.
    System text does not count as said: it may change without renaming what follows. All three may be equal,
    as in a tool that is polled: then the refs are numbered.

    `occurrences` counts how often each ref without a number has occurred. Those of `settled` are shared with
    other logs and never change: copying names costs only what came since. `before` is the content of the last
    segment that is not system text.
    """

    settled: dict[Ref, int] = {}
    occurrences: dict[Ref, int] = {}
    before: Digest = Digest("")

    def name(self, segment: Segment, sent_in_full: Digest) -> NamedSegment:
        """The next segment with its ref. `sent_in_full` is the digest of its parts as they came."""
        content = content_digest(segment, sent_in_full)
        if segment.key:
            stem = f"{segment.key}@{content[:20]}"
        else:
            stem = handle(content)
        first_ref = Ref(f"{stem}~{self.before[:8]}")
        nth = self.occurrences.get(first_ref) or self.settled.get(first_ref, 0)
        ref = first_ref
        if nth:
            ref = Ref(f"{first_ref}#{nth}")
        self.occurrences[first_ref] = nth + 1
        if segment.role is not Role.SYSTEM:
            self.before = content
        return NamedSegment(ref, content, segment)

    def copy(self) -> SegmentNames:
        """Names that go on from here, and change nothing in these."""
        if len(self.occurrences) < SETTLED_AT:
            return SegmentNames(settled=self.settled, occurrences=dict(self.occurrences), before=self.before)
        return SegmentNames(settled=self.settled | self.occurrences, before=self.before)
