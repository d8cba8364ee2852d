"""Search as a source of context, and as a tool that a model calls.

    Session.open(…, sources=[search(index, standing=lambda: entries)])
    head={"tools": [search_tool()]}        and for each of its calls:  await answered(index, arguments)

What is found becomes excerpts with their place and score: without what already stands in the request, within
a share of the room, the most relevant last, next to the question. It does not fill the index.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any

import msgspec

from lamina.context.search.index import Hit, Index
from lamina.core.text.characters import split_words
from lamina.core.text.estimate import estimate
from lamina.core.values import Entry, Segment, Text, ToolResult
from lamina.errors import BadInput
from lamina.segments import excerpt

SHARE, TOKENS, MOST = 0.25, 4_000, 50
"""Of the room that is left, and in tokens: what excerpts may take; and how many there may be."""

LEAST = 0.15
"""A hit with less than this part of the best one's score is not worth its tokens."""

FRAME = 8
"""Tokens around one excerpt on the wire: those of a message, and a few for where its pieces meet."""

Standing = Callable[[], Iterable[Segment | Entry]]
Source = Callable[[str, int | None], Awaitable[Sequence[Segment]]]
Count = Callable[[str], int]


class SearchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much may be found: a share of the room, tokens, excerpts, and the part of the best score."""

    share: float = SHARE
    tokens: int = TOKENS
    most: int = MOST
    least: float = LEAST

    def __post_init__(self) -> None:
        if not (0 < self.share <= 1 and self.tokens > 0 and self.most > 0 and 0 <= self.least <= 1):
            hint = "share and least are parts of 1, tokens and most above 0"
            raise BadInput(f"{self!r}", place="limits", hint=hint)

    def room(self, left: int | None) -> int:
        return self.tokens if left is None else min(self.tokens, int(left * self.share))


class SearchArguments(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of the tool."""

    query: str
    most: int = 10


DEFAULT = SearchLimits()


def search(
    index: Index,
    *,
    sources: Collection[str] | None = None,
    standing: Standing | None = None,
    limits: SearchLimits = DEFAULT,
    count: Count = estimate,
) -> Source:
    """A source that finds excerpts for each prompt.

    `standing` gives what the request has already (the entries of the last envelope, or segments): text that
    stands there in full is not sent again. `sources` limits the search; `count` counts tokens.
    """

    async def source(prompt: str, room: int | None) -> Sequence[Segment]:
        hits = await index.query(prompt, most=2 * limits.most, sources=sources)
        new = without_standing(hits, standing() if standing else ())
        return excerpts(new, room=limits.room(room), limits=limits, count=count)

    return source


def search_tool(name: str = "search") -> dict[str, Any]:
    """The definition of the tool, in plain words: name, description, schema of its arguments."""
    return {
        "name": name,
        "description": "Finds passages of the workspace, of what was said and of what is remembered. Ask in "
        "plain words or with the identifiers you look for; names of speakers and dates help.",
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What to look for."},
                "most": {
                    "type": "integer",
                    "description": "How many passages, 10 unless given.",
                    "minimum": 1,
                },
            },
            "required": ["query"],
            "additionalProperties": False,
        },
    }


async def answered(
    index: Index,
    arguments: str | dict[str, Any],
    *,
    sources: Collection[str] | None = None,
    room: int | None = None,
    limits: SearchLimits = DEFAULT,
    count: Count = estimate,
) -> tuple[Segment, ...]:
    """What a call of the tool finds; arguments that cannot be used are refused with their reason."""
    try:
        asked = (
            msgspec.json.decode(arguments, type=SearchArguments)
            if isinstance(arguments, str)
            else msgspec.convert(arguments, SearchArguments)
        )
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeError, RecursionError) as error:
        raise BadInput(str(error), place="arguments", hint='give {"query": "words to look for"}') from None
    most = min(max(asked.most, 1), limits.most)
    hits = await index.query(asked.query, most=most, sources=sources)
    return excerpts(hits, room=limits.room(room), limits=limits, count=count)


def without_standing(hits: Iterable[Hit], standing: Iterable[Segment | Entry]) -> list[Hit]:
    """The hits whose text does not stand in the request word for word, spaces aside."""
    there = "\n".join(_flat(text) for one in standing for text in _texts(one))
    return [hit for hit in hits if _flat(hit.chunk.text) not in there]


def excerpts(
    hits: Sequence[Hit], *, room: int, limits: SearchLimits = DEFAULT, count: Count = estimate
) -> tuple[Segment, ...]:
    """Hits, best first, as excerpts in at most `room` tokens, the most relevant last."""
    taken: list[Hit] = []
    left, seen = room, set[str]()
    best = hits[0].score if hits else 0.0
    for hit in hits[: 2 * limits.most]:
        if hit.score < limits.least * best or len(taken) == limits.most:
            break
        size = count(_shown(hit)) + _framed(hit, count)
        if size <= left and _flat(hit.chunk.text) not in seen:
            seen.add(_flat(hit.chunk.text))
            taken.append(hit)
            left -= size
    return tuple(_excerpt(run) for run in reversed(_runs(taken)))


def _framed(hit: Hit, count: Count) -> int:
    """The tokens of the tag: source, place and score."""
    place = f"{hit.chunk.place} to {hit.chunk.place}"
    return count(f'<excerpt source="{hit.source}" place="{place}" score="0.00"></excerpt>') + FRAME


def _runs(hits: Sequence[Hit]) -> list[list[Hit]]:
    """Neighbours that were both found are one excerpt, in their order, where the better of them stands."""
    placed: dict[tuple[str, int], list[Hit]] = {}
    for hit in hits:
        before, after = (placed.get((hit.source, hit.nth + step)) for step in (-1, 1))
        run = [*_fitting(before, hit), hit, *_fitting(after, hit)]
        placed.update({(one.source, one.nth): run for one in run})
    unique = {id(run): run for run in placed.values()}
    return sorted(unique.values(), key=lambda run: -max(one.score for one in run))


def _fitting(run: list[Hit] | None, hit: Hit) -> list[Hit]:
    """A run that the hit can continue: turns of one section; what overlaps is not joined."""
    joins = run is not None and hit.chunk.sort == "turn" == run[0].chunk.sort
    return run if run and joins and run[0].chunk.section == hit.chunk.section else []


def _excerpt(run: Sequence[Hit]) -> Segment:
    places = [hit.chunk.place for hit in run if hit.chunk.place]
    place = places[0] if len(set(places)) == 1 else f"{places[0]} to {places[-1]}" if places else ""
    made = excerpt("\n".join(map(_shown, run)), source=run[0].source, place=place)
    score = f"{max(hit.score for hit in run):.2f}"
    return msgspec.structs.replace(made, attrs={**made.attrs, "score": score})


def _shown(hit: Hit) -> str:
    """The text of a chunk; of a turn, with who said it and on which day."""
    chunk = hit.chunk
    if chunk.sort != "turn":
        return chunk.text
    who = ", ".join(filter(None, (chunk.speaker, chunk.at[:10])))
    return f"{who}: {chunk.text}" if who else chunk.text


def _texts(one: Segment | Entry) -> Iterable[str]:
    for part in one.parts:
        if isinstance(part, Text):
            yield part.text
        elif isinstance(part, ToolResult):
            yield from (inner.text for inner in part.content if isinstance(inner, Text))


def _flat(text: str) -> str:
    return " ".join(split_words(text))
