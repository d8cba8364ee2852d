"""What a saved chat refers to without holding it: notes, addresses, tags, folders.

A page that another system saved names the context of each message but does not contain it. The names are
stored with the message, in its meta, until `rebuild` replaces them by segments. Links are left alone unless
the caller allows them. This module reads no files and no network: the caller's function does.
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
"""Gives the segments that a mention refers to; none if it cannot be resolved."""


def mentions(segment: Segment) -> tuple[Mention, ...]:
    """What this message refers to and the log does not hold."""
    pairs = segment.meta.get(MENTIONS)
    if not isinstance(pairs, list | tuple):
        return ()
    return tuple(Mention(*map(str, pair)) for pair in pairs)


def replace_mentions(segment: Segment, new_mentions: Iterable[Mention]) -> Segment:
    """The segment with these mentions in place of its own."""
    pairs = [[mention.sort, mention.name] for mention in new_mentions]
    meta = dict(segment.meta)
    meta.pop(MENTIONS, None)
    if pairs:
        meta[MENTIONS] = pairs
    return msgspec.structs.replace(segment, meta=meta)


async def rebuild(log: Iterable[Segment], find: Finder, *, links: bool = False) -> tuple[Segment, ...]:
    """The log with the context of its messages in front of them.

    `find` resolves each mention; one that it cannot resolve stays with its message. Links are passed to
    `find` only if `links` is true.
    """
    new_log: list[Segment] = []
    for segment in log:
        unresolved: list[Mention] = []
        for mention in mentions(segment):
            context: tuple[Segment, ...] = ()
            if links or mention.sort not in LINKS:
                context = tuple(await find(mention))
            if not context:
                unresolved.append(mention)
            new_log += context
        if MENTIONS in segment.meta:
            segment = replace_mentions(segment, unresolved)  # noqa: PLW2901 - the same message, less mentions
        new_log.append(segment)
    return tuple(new_log)


def note_path(name: str, paths: Iterable[str]) -> str | None:
    """The path that a note's name refers to: the path itself, else the only note of that name, else None.

    `spec` refers to `docs/spec.md`, unless there is another `spec.md`.
    """
    all_paths = tuple(paths)
    if name in all_paths:
        return name
    stem = _note_stem(name)
    matches = [path for path in all_paths if _note_stem(path) == stem]
    if len(matches) != 1:
        return None
    return matches[0]


def _note_stem(path: str) -> str:
    """The name of a note without folder and ending: `spec` of `docs/spec.md`."""
    return path.rpartition("/")[2].removesuffix(".md")
