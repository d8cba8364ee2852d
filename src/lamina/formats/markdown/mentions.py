"""What a saved chat refers to without holding it: notes, addresses, tags, folders.

A page that another system saved names the context of each message and keeps none of it. The names stay with
the message, in its meta, until `rebuild` finds what they stand for; links are left alone unless asked for. It
reads no files and no network: the caller's function does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

import msgspec

from lamina.core.values import Segment

MENTIONS = "mentions"
LINKS = frozenset(("url", "web_tab"))


class Mention(msgspec.Struct, frozen=True):
    """One thing that a message refers to: a note, url, web_tab, tag or folder, and its name."""

    sort: str
    name: str


Finder = Callable[[Mention], Awaitable[Iterable[Segment]]]
"""What a mention stands for, as segments; nothing where it is not found."""


def mentions(segment: Segment) -> tuple[Mention, ...]:
    """What this message refers to and the log does not hold."""
    named = segment.meta.get(MENTIONS)
    return tuple(Mention(*map(str, pair)) for pair in named) if isinstance(named, list | tuple) else ()


def mentioning(segment: Segment, named: Iterable[Mention]) -> Segment:
    """The segment with these mentions in place of its own."""
    meta = {name: value for name, value in segment.meta.items() if name != MENTIONS}
    pairs = [[mention.sort, mention.name] for mention in named]
    return msgspec.structs.replace(segment, meta=meta | {MENTIONS: pairs} if pairs else meta)


async def rebuild(log: Iterable[Segment], find: Finder, *, links: bool = False) -> tuple[Segment, ...]:
    """The log with what its messages refer to before them, where `find` gives it; the rest stays named."""
    made: list[Segment] = []
    for segment in log:
        left: list[Mention] = []
        for mention in mentions(segment):
            wanted = links or mention.sort not in LINKS
            found = tuple(await find(mention)) if wanted else ()
            made += found
            if not found:
                left.append(mention)
        made.append(mentioning(segment, left) if MENTIONS in segment.meta else segment)
    return tuple(made)


def note_path(name: str, paths: Iterable[str]) -> str | None:
    """The path that a note's name means: itself, else the only note of that name; else None."""
    known = tuple(paths)
    if name in known:
        return name
    stem = _stem(name)
    same = [path for path in known if _stem(path) == stem]
    return same[0] if len(same) == 1 else None


def _stem(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(".md")
