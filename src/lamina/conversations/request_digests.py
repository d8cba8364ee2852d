"""What a request says, as digests: enough to tell whether another request continues it.

`lamina.conversations.recognise` compares them.
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from lamina.caches.prefix_path import count_same_objects
from lamina.core.hashing import content_digest, parts_digest
from lamina.core.values import Digest, Role, Segment


class RequestDigests(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The digests of one request.

    `system` has the digests of the system text before the first other message, and `system_segments` that
    text. `segments` are the segments after it, `digests` the digest of each, and `chain` the hash of all of
    them up to and including each. `first_answer` is the index of the first segment by the model after
    something that somebody else said: many applications greet first, all in the same words.
    """

    system: tuple[Digest, ...] = ()
    system_segments: tuple[Segment, ...] = ()
    segments: tuple[Segment, ...] = ()
    digests: tuple[Digest, ...] = ()
    chain: tuple[bytes, ...] = ()
    first_answer: int = 0

    @property
    def opening(self) -> bytes:
        """The hash of what was said before the model's first answer; b"" if nothing was said."""
        if not self.chain:
            return b""
        length = max(self.first_answer, 1)
        return self.chain[min(length, len(self.chain)) - 1]

    @property
    def has_answer(self) -> bool:
        return self.first_answer < len(self.chain)

    @property
    def opening_address(self) -> bytes:
        """What a conversation is listed under before its first answer. Another system text is another one."""
        return self.opening + self.system_digest.encode()

    def addresses(self) -> tuple[bytes, ...]:
        """What the conversation may be listed under, the first where there is room.

        All its later requests have these too: the link of the first answer, and those 1, 3, 7 … further on.
        """
        if not self.has_answer:
            return (self.opening_address,)
        addresses: list[bytes] = []
        index = self.first_answer
        step = 1
        while index < len(self.chain):
            addresses.append(self.chain[index])
            index += step
            step *= 2
        return tuple(addresses)

    @property
    def system_digest(self) -> str:
        """One digest of all system text."""
        return blake2b("".join(self.system).encode(), digest_size=16).hexdigest()


NO_DIGESTS = RequestDigests()


def digest_log(log: tuple[Segment, ...], previous: RequestDigests) -> RequestDigests:
    """Digest a log. Segments at its start that are the same objects as in `previous` are not hashed again.

    Each link of the chain hashes the link before it, so equal links mean equal beginnings.
    """
    system_end = _index_after_system(log)
    segments = log[system_end:]
    same_count = count_same_objects(segments, previous.segments)
    new_digests = [_digest_segment(segment) for segment in segments[same_count:]]
    chain = list(previous.chain[:same_count])
    for digest in new_digests:
        last_link = chain[-1] if chain else b""
        chain.append(blake2b(last_link + digest.encode(), digest_size=16).digest())
    first_answer = previous.first_answer
    if first_answer >= same_count:
        first_answer = _index_of_first_answer(segments)
    system_segments = log[:system_end]
    same_system = count_same_objects(system_segments, previous.system_segments)
    new_system = map(_digest_segment, system_segments[same_system:])
    return RequestDigests(
        system=(*previous.system[:same_system], *new_system),
        system_segments=system_segments,
        segments=segments,
        digests=(*previous.digests[:same_count], *new_digests),
        chain=tuple(chain),
        first_answer=first_answer,
    )


def count_shared_links(chain: tuple[bytes, ...], other: tuple[bytes, ...]) -> int:
    """How many links two chains have in common at their start.

    Each link is the hash of everything before it: two chains that are equal at one index are equal at all
    smaller ones, so a binary search finds the last equal one.
    """
    low = 0
    high = min(len(chain), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if chain[middle - 1] == other[middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low


def _index_after_system(log: tuple[Segment, ...]) -> int:
    """The index of the first segment that is not system text."""
    for index, segment in enumerate(log):
        if segment.role is not Role.SYSTEM:
            return index
    return len(log)


def _index_of_first_answer(segments: tuple[Segment, ...]) -> int:
    """The index of the model's first segment after somebody else's; the number of segments without one."""
    others_spoke = False
    for index, segment in enumerate(segments):
        if segment.role is not Role.ASSISTANT:
            others_spoke = True
        elif others_spoke:
            return index
    return len(segments)


def _digest_segment(segment: Segment) -> Digest:
    return content_digest(segment, parts_digest(segment.role, segment.parts))
