"""How much attachments have to do with the prompt, and what follows from it: what is lowered first.

    Session.open(..., options=Options(order=Relevance()))
    Session.open(..., options=Options(order=Relevance(freshness="fresh", judge=by_index(index))))

A relevance is an order for cuts: another order proposes, this one changes the priorities that it sees, by at
most `reach`, and says so in `why`. What the caller decided (a priority, a pin) stays. The words of the prompt
decide, or a judge that is asked once for each prompt and whose scores are kept with it, or a model whose
priorities are kept with the attachments: a replay asks nobody.

It moves no attachment, raises no form, and does not know when a cut is due; a session asks it `outdated`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, overload

import anyio
import msgspec

from lamina.context.shared_words import WordMatch, by_words
from lamina.core.kinds import HIGH, KINDS, LOW, Kinds, row
from lamina.core.orders import Batch, Move, Order, OrderView, goes_last
from lamina.core.values import Entry, Form, Layer, Role, Segment
from lamina.core.wording import text_of
from lamina.workspace.superseding import ORDER

Freshness = Literal["stable", "fresh"]
"""What wins where they conflict: the cached prefix, or what the prompt is about.

"stable": a priority is set when an attachment comes in; a later prompt counts only at a cut that is due
anyway, so between cuts every byte stays. "fresh": each prompt may make a cut of its own, which shortens what
shares nothing with it; the cut says in its reason what that costs.
"""

Scorer = Callable[[str, Sequence[Segment]], Sequence[WordMatch]]
"""How well each attachment matches a prompt, from 0 to 1. Pure: it is called in the middle of a build."""

Judge = Callable[[str, Sequence[Segment]], Awaitable[Mapping[str, float]]]
"""The same for whoever must be waited for, by the keys of attachments; who is not named has 0."""


class Suggested(Protocol):
    """Segments with the priorities that a model gave them, and notes."""

    @property
    def segments(self) -> tuple[Segment, ...]: ...
    @property
    def notes(self) -> tuple[str, ...]: ...


Suggest = Callable[[Sequence[Segment], str], Awaitable[Suggested]]
"""Attachments and the prompt to priorities: `partial(suggest_priorities, write=model)`."""

SCORES, SET = "relevance", "priority"
"""Names in `meta`: the scores of a judge, kept with a prompt; how a priority was set."""

ASKED, TYPED = "asked", "typed"
"""Names in the `meta` of a session's prompt: that it is one; what was typed, where that differs."""

SECONDS = 10.0
"""How long a judge may take."""

MOST = 50
"""Hits of an index that are looked at."""


class Judged(NamedTuple):
    """What a priority becomes, and why. `apart`: it has nothing to do with the prompt."""

    priority: int
    why: str
    apart: bool = False


class Ranked(NamedTuple):
    """A turn with its priorities set, and what a caller should know."""

    segments: list[Segment]
    notes: tuple[str, ...] = ()


class Relevance(msgspec.Struct, frozen=True, kw_only=True):
    """An order by relevance. `reach` is the most by which a priority changes, `then` the order under it."""

    freshness: Freshness = "stable"
    score: Scorer = by_words
    judge: Judge | None = None
    suggest: Suggest | None = None
    reach: int = 2
    then: Order = ORDER

    def __call__(self, view: OrderView) -> Iterator[Batch]:
        judged = self.judged(view.entries, view.kinds)
        seen = msgspec.structs.replace(view, entries=_Adjusted(view.entries, judged))
        for batch in self.then(seen):
            yield tuple(_told(move, judged) for move in batch)

    def outdated(self, view: OrderView) -> Iterator[Batch]:
        """An order of its own: only what stands in full, came with an earlier prompt and shares nothing."""
        free = frozenset(view.free())
        for at, one in self.judged(view.entries, view.kinds).items():
            entry = view.entries[at]
            old = entry.layer is Layer.HISTORY and entry.form is Form.FULL and at in free
            if old and one.apart and not goes_last(entry, view.kinds):
                yield (Move(at, Form.COMPACT, f"attachment: {one.why}"),)

    def judged(self, entries: Sequence[Entry], kinds: Kinds = KINDS) -> dict[int, Judged]:
        """What becomes of each attachment's priority for the prompt that stands last, by position."""
        prompt = next((e.segment for e in reversed(entries) if _asks(e)), None)
        open_ = [i for i, e in enumerate(entries) if e.form is not Form.OMITTED and _open(e.segment, kinds)]
        if prompt is None or not open_:
            return {}
        matches = self._matches(prompt, [entries[i].segment for i in open_])
        again = {e.content for e in entries if e.layer is Layer.TURN}
        found: dict[int, Judged] = {}
        for i, match in zip(open_, matches, strict=True):
            repeated = entries[i].layer is not Layer.TURN and entries[i].content in again
            better = _AGAIN if repeated else match
            if any(m.score > 0 for m in matches) or repeated:
                found[i] = self._judged(entries[i].segment, better, kinds)
        return found

    async def ranked(self, turn: Sequence[Segment], log: Sequence[Segment], kinds: Kinds = KINDS) -> Ranked:
        """A turn with the priorities that it is kept with; the prompt keeps the scores of a judge."""
        prompt = next((one for one in reversed(turn) if one.meta.get(ASKED)), None)
        if prompt is None or not any(_open(one, kinds) for one in (*log, *turn)):
            return Ranked(list(turn))
        given, notes = await self._suggested(turn, prompt)
        scores, problem = await self._scores(prompt, [one for one in (*log, *given) if _open(one, kinds)])
        if scores:
            noted = msgspec.structs.replace(prompt, meta=prompt.meta | {SCORES: scores})
            given, prompt = [noted if one is prompt else one for one in given], noted
        return Ranked(self._set(given, prompt, kinds), notes + problem)

    def _set(self, given: list[Segment], prompt: Segment, kinds: Kinds) -> list[Segment]:
        open_ = [i for i, one in enumerate(given) if _open(one, kinds)]
        matches = self._matches(prompt, [given[i] for i in open_])
        if all(match.score <= 0 for match in matches):
            return given
        for i, match in zip(open_, matches, strict=True):
            given[i] = _recorded(given[i], self._judged(given[i], match, kinds), kinds)
        return given

    async def _suggested(
        self, turn: Sequence[Segment], prompt: Segment
    ) -> tuple[list[Segment], tuple[str, ...]]:
        if self.suggest is None:
            return list(turn), ()
        try:
            made = await self.suggest(turn, _words(prompt))
        except Exception as error:  # noqa: BLE001 - whatever a model does wrong, the turn goes on
            return list(turn), (f"no priorities were suggested: {error!s:.200}",)
        same = [(a.kind, a.key, a.parts) for a in made.segments] == [(b.kind, b.key, b.parts) for b in turn]
        strange = () if same else ("the suggested priorities were not used: they are for other segments",)
        return list(made.segments if same else turn), tuple(made.notes) + strange

    async def _scores(
        self, prompt: Segment, attached: Sequence[Segment]
    ) -> tuple[dict[str, float], tuple[str, ...]]:
        if self.judge is None or not attached:
            return {}, ()
        with anyio.move_on_after(SECONDS):
            try:
                said = await self.judge(_words(prompt), attached)
                return {key: round(min(score, 1.0), 3) for key, score in said.items() if score > 0}, ()
            except Exception as error:  # noqa: BLE001 - the words of the prompt decide then
                return {}, (f"relevance by words only: {error!s:.200}",)
        return {}, (f"relevance by words only: no answer in {SECONDS:g} seconds",)

    def _matches(self, prompt: Segment, attached: Sequence[Segment]) -> Sequence[WordMatch]:
        scores = prompt.meta.get(SCORES)
        if isinstance(scores, dict) and scores:
            return [WordMatch(_number(scores.get(one.key))) for one in attached]
        return self.score(_words(prompt), attached)

    def _judged(self, segment: Segment, match: WordMatch, kinds: Kinds) -> Judged:
        usual = row(kinds, segment).priority
        wanted = usual + round(self.reach * (1 - 2 * match.score))
        best = max(min(wanted, LOW), HIGH) if usual >= HIGH else usual
        changed = f", {best - usual:+d}" if best != usual else ""
        return Judged(best, f"priority {usual}{changed}: {match.told}", match.score <= 0)


_AGAIN = WordMatch(1.0, said="attached again with the prompt")


class Searched(Protocol):
    """What is asked of an index: the best hits for a text, each with its source and score."""

    async def query(self, text: str, *, most: int, sources: Collection[str] | None) -> Sequence[Any]: ...


def by_index(index: Searched) -> Judge:
    """A judge by an index in which the sources have the keys of the attachments."""

    async def judge(prompt: str, attached: Sequence[Segment]) -> Mapping[str, float]:
        keys = {one.key for one in attached if one.key}
        hits = await index.query(prompt, most=MOST, sources=keys) if keys else ()
        best = max((hit.score for hit in hits), default=0.0)
        scores: dict[str, float] = {}
        for hit in hits if best > 0 else ():
            scores[hit.source] = max(scores.get(hit.source, 0.0), hit.score / best)
        return scores

    return judge


class _Adjusted(Sequence[Entry]):
    """The entries of a plan, as they are at that moment, with other priorities."""

    def __init__(self, live: Sequence[Entry], judged: Mapping[int, Judged]) -> None:
        self._live, self._judged = live, judged

    @overload
    def __getitem__(self, at: int) -> Entry: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Entry]: ...
    def __getitem__(self, at: int | slice) -> Entry | Sequence[Entry]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        entry, one = self._live[at], self._judged.get(at if at >= 0 else at + len(self))
        if one is None:
            return entry
        segment = msgspec.structs.replace(entry.segment, priority=one.priority)
        return msgspec.structs.replace(entry, segment=segment)

    def __iter__(self) -> Iterator[Entry]:
        return (self[i] for i in range(len(self)))

    def __len__(self) -> int:
        return len(self._live)


def _told(move: Move, judged: Mapping[int, Judged]) -> Move:
    """Why an attachment is lowered, and by what its priority changed; other reasons stay."""
    one = judged.get(move.at)
    return move if one is None or move.why != "attachment" else move._replace(why=f"attachment: {one.why}")


def _recorded(segment: Segment, one: Judged, kinds: Kinds) -> Segment:
    if one.priority == row(kinds, segment).priority:
        return segment
    meta: dict[str, Any] = segment.meta | {SET: {"by": "relevance", "why": one.why}}
    return msgspec.structs.replace(segment, priority=one.priority, meta=meta)


def _open(segment: Segment, kinds: Kinds) -> bool:
    """Whether nobody decided about it: no pin, and no priority but one that relevance set."""
    by = segment.meta.get(SET)
    ours = isinstance(by, dict) and by.get("by") == "relevance"
    return (segment.priority is None or ours) and not segment.pinned and row(kinds, segment).attachment


def _number(score: object) -> float:
    return min(max(float(score), 0.0), 1.0) if isinstance(score, int | float) else 0.0


def _asks(entry: Entry) -> bool:
    return entry.layer is Layer.PROMPT and entry.role is Role.USER and bool(_words(entry.segment))


def _words(prompt: Segment) -> str:
    return str(prompt.meta.get(TYPED) or text_of(prompt.parts))
