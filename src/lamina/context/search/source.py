"""Search as a source of context, and as a tool that a model calls.

    Session.open(…, sources=[search(index, already_sent=lambda: entries)])
    head={"tools": [search_tool()]}        and for each of its calls:  await answered(index, arguments)

Hits become excerpts with their place and score. Text that is already in the request is left out. The excerpts
take at most a share of the room, and the most relevant is last, next to the question. Nothing here fills the
index.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import msgspec

from lamina.context.port import Source
from lamina.context.search.chunks import texts_of
from lamina.context.search.index import Hit, Index
from lamina.core.text.characters import split_words
from lamina.core.text.estimate import estimate_tokens
from lamina.core.values import Entry, Segment
from lamina.errors import BadInput
from lamina.segments import excerpt

SHARE = 0.25
"""The share of the free room that excerpts may take."""

TOKENS = 4_000
"""Tokens that excerpts may take."""

MOST = 50
"""How many excerpts there may be."""

LEAST = 0.15
"""A hit with less than this part of the best score is not worth its tokens."""

FRAME = 8
"""Tokens around one excerpt on the wire: those of a message, and a few for where its pieces meet."""

SentSegments = Callable[[], Iterable[Segment | Entry]]
"""Returns what is already in the request."""

Count = Callable[[str], int]


class SearchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much a search may return: a share of the room, tokens, excerpts, and the part of the best score."""

    share: float = SHARE
    tokens: int = TOKENS
    most: int = MOST
    least: float = LEAST

    def __post_init__(self) -> None:
        """Raise BadInput for a share that is none, or for limits that let nothing through."""
        are_right = (0 < self.share <= 1, 0 <= self.least <= 1, self.tokens > 0, self.most > 0)
        if not all(are_right):
            hint = "share and least are parts of 1, tokens and most above 0"
            raise BadInput(f"{self!r}", place="limits", hint=hint)

    def room(self, left: int | None) -> int:
        """The tokens that excerpts may take if so many are `left`; None: nobody has counted."""
        if left is None:
            return self.tokens
        return min(self.tokens, int(left * self.share))


class SearchArguments(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of the tool."""

    query: str
    most: int = 10


DEFAULT = SearchLimits()


def search(
    index: Index,
    *,
    sources: Collection[str] | None = None,
    already_sent: SentSegments | None = None,
    limits: SearchLimits = DEFAULT,
) -> Source:
    """A source that finds excerpts for each prompt.

    `already_sent` returns what the request has already (the entries of the last envelope, or segments): text
    that is there in full is not sent again. `sources` limits the search.
    """

    async def source(prompt: str, room: int | None) -> Sequence[Segment]:
        hits = await index.query(prompt, most=2 * limits.most, sources=sources)
        if already_sent is not None:
            hits = drop_sent_hits(hits, already_sent())
        return excerpts(hits, room=limits.room(room), limits=limits)

    return source


def search_tool(name: str = "search") -> dict[str, Any]:
    """The definition of the tool, in no dialect: name, description, schema of its arguments."""
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


async def answer_search_call(index: Index, arguments: str | dict[str, Any]) -> tuple[Segment, ...]:
    """Answer a call of the tool. Arguments that cannot be used raise BadInput with the reason."""
    request = _read_arguments(arguments)
    hits = await index.query(request.query, most=min(max(request.most, 1), MOST))
    return excerpts(hits, room=TOKENS)


def _read_arguments(arguments: str | dict[str, Any]) -> SearchArguments:
    """The arguments of a search. Raises BadInput for anything that a model wrote wrong."""
    try:
        if isinstance(arguments, str):
            return msgspec.json.decode(arguments, type=SearchArguments)
        return msgspec.convert(arguments, SearchArguments)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeError, RecursionError) as error:
        raise BadInput(str(error), place="arguments", hint='give {"query": "words to look for"}') from None


def drop_sent_hits(hits: Iterable[Hit], sent: Iterable[Segment | Entry]) -> tuple[Hit, ...]:
    """The hits whose text is not in the request word for word, spaces aside."""
    sent_texts: list[str] = []
    for segment in sent:
        sent_texts += map(_flatten, texts_of(segment))
    all_sent = "\n".join(sent_texts)
    new_hits: list[Hit] = []
    for hit in hits:
        text = _flatten(hit.chunk.text)
        if text not in all_sent:
            new_hits.append(hit)
    return tuple(new_hits)


def excerpts(
    hits: Sequence[Hit], *, room: int, limits: SearchLimits = DEFAULT, count: Count = estimate_tokens
) -> tuple[Segment, ...]:
    """Hits, best first, as excerpts in at most `room` tokens, the most relevant last.

    A model reads best what stands last, next to the question. Equal texts are shown once.
    """
    if not hits:
        return ()
    least_score = limits.least * hits[0].score
    chosen: list[Hit] = []
    chosen_texts: set[str] = set()
    for hit in hits[: 2 * limits.most]:
        if hit.score < least_score or len(chosen) == limits.most:
            break
        tokens = count(_text_with_speaker(hit)) + _count_frame(hit, count)
        text = _flatten(hit.chunk.text)
        if tokens <= room and text not in chosen_texts:
            chosen.append(hit)
            chosen_texts.add(text)
            room -= tokens
    # a model reads best what stands last, next to the question
    return tuple(_make_excerpt(run) for run in reversed(_join_neighbours(chosen)))


def _count_frame(hit: Hit, count: Count) -> int:
    """The tokens of the tag, with source, place and score, and of the message around it."""
    place = f"{hit.chunk.place} to {hit.chunk.place}"
    return count(f'<excerpt source="{hit.source}" place="{place}" score="0.00"></excerpt>') + FRAME


def _join_neighbours(hits: Sequence[Hit]) -> list[list[Hit]]:
    """The runs of hits, best first. Neighbouring turns are one run, in their order."""
    runs: dict[tuple[str, int], list[Hit]] = {}
    for hit in hits:
        before = runs.get((hit.source, hit.nth - 1), [])
        after = runs.get((hit.source, hit.nth + 1), [])
        run = [hit]
        if _can_join(before, hit):
            run = [*before, *run]
        if _can_join(after, hit):
            run = [*run, *after]
        # all members map to the same list, so a run may grow at both its ends
        for member in run:
            runs[member.source, member.nth] = run
    unique = {id(run): run for run in runs.values()}
    return sorted(unique.values(), key=_best_score, reverse=True)


def _can_join(run: Sequence[Hit], hit: Hit) -> bool:
    """Whether a hit continues a run: turns of one section do. Chunks of files overlap, so they do not."""
    if not run:
        return False
    neighbour = run[0].chunk
    if neighbour.section != hit.chunk.section:
        return False
    return neighbour.sort == hit.chunk.sort == "turn"


def _best_score(run: Sequence[Hit]) -> float:
    return max(hit.score for hit in run)


def _make_excerpt(run: Sequence[Hit]) -> Segment:
    """Hits in a row as one excerpt, with the place of all and the score of the best."""
    text = "\n".join(_text_with_speaker(hit) for hit in run)
    segment = excerpt(text, source=run[0].source, place=_place_of(run))
    attrs = {**segment.attrs, "score": f"{_best_score(run):.2f}"}
    return msgspec.structs.replace(segment, attrs=attrs)


def _place_of(run: Sequence[Hit]) -> str:
    """The place of a run: `lines 10-24`, or `k1 to k3`."""
    places = list(filter(None, (hit.chunk.place for hit in run)))
    if not places:
        return ""
    if len(set(places)) == 1:
        return places[0]
    return f"{places[0]} to {places[-1]}"


def _text_with_speaker(hit: Hit) -> str:
    """The text of a chunk. A turn begins with its speaker and day: `Ana, 2023-05-08: Hello`."""
    chunk = hit.chunk
    if chunk.sort != "turn":
        return chunk.text
    speaker_and_day = ", ".join(filter(None, (chunk.speaker, chunk.at[:10])))
    if not speaker_and_day:
        return chunk.text
    return f"{speaker_and_day}: {chunk.text}"


def _flatten(text: str) -> str:
    """The text with single spaces between its words."""
    return " ".join(split_words(text))
