"""Judges how much attachments have to do with the prompt, so that a cut lowers the unrelated ones first.

    Session.open(..., policy=Policy(order=Relevance()))

A relevance is an order for cuts: another order proposes, and this one changes the priorities that the other
sees, by at most `reach`, and says so in `why`. What the caller decided (a priority, a pin) stays.

A priority is set when an attachment comes in, and is stored with it. A later prompt counts only at a cut that
is due anyway, so between cuts every byte stays. A relevance moves no attachment, raises no form, and does not
know when a cut is due.

Words are scored much as by BM25: those that are shared and rare count most. The result is the same on every
machine: only sums, products, quotients and square roots are used, and sums are `fsum`, since `sum` rounds
fractions in another way before Python 3.12.
"""

from __future__ import annotations

import re
from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import fsum, sqrt
from typing import Any, NamedTuple

import msgspec

from lamina.core.kinds import HIGH, KINDS, LOW, Kinds, kind_of
from lamina.core.ladder import ladder
from lamina.core.orders import Batch, Move, OrderView
from lamina.core.text.characters import ALPHANUMERIC, fold_case
from lamina.core.values import Entry, Form, Layer, Role, Segment
from lamina.core.wording import text_of

READ = 100_000
"""Characters of an attachment that are looked at."""

QUIET = frozenset(
    "again answer ask continue explain file files give go good great help hello hi know let like look make "
    "need next now ok okay one please question read right say see show sure tell thank thanks thing think "
    "try use want way well yes yet".split()
)
"""Words of any conversation, which say nothing about its subject."""

_K = 1.2
_B = 0.75
"""The usual constants of BM25."""

_WORD = re.compile(f"[{ALPHANUMERIC}]+")
_DOUBLED = re.compile(r"([b-df-hjkmnp-rtv-z])\1\Z")
"""A doubled consonant at the end, as `tt` in `fitt`, from `fitting` without its ending; not `ll`, `ss`."""


__all__ = ["Relevance"]


class WordMatch(NamedTuple):
    """How well a text matches, from 0 to 1, and how many words of the prompt are in it.

    `reason` replaces the words if the match has another reason.
    """

    score: float
    words: int = 0
    reason: str = ""

    def describe(self) -> str:
        """Why the text matches. This is stored, in the ledger and with the attachment.

        So it quotes no word of the prompt: whoever erases that would leave its words behind here.
        """
        if self.reason:
            return self.reason
        if self.words:
            noun = "word" if self.words == 1 else "words"
            return f"shares {self.words} {noun} with the prompt"
        if self.score > 0:
            return f"relevance {self.score:.2f}"
        return "shares nothing with the prompt"


Scorer = Callable[[str, Sequence[Segment]], Sequence[WordMatch]]
"""How well each attachment matches a prompt, from 0 to 1. Pure: it is called in the middle of a build."""


class WordCounts(NamedTuple):
    """How often each stem of the prompt is in a text, and the size of the text in words."""

    times: Tally[str]
    size: int


def score_by_words(prompt: str, segments: Sequence[Segment]) -> list[WordMatch]:
    """How well each segment matches. The best has 1, and a segment that shares no word has 0."""
    from lamina.context.search.words import STOP, find_terms, fold_text  # noqa: PLC0415 - this loads the index

    terms = find_terms(prompt)
    prompt_stems = {stem(word) for word in terms if word not in QUIET and word not in STOP}
    counts = [_count_words(segment, prompt_stems, fold_text) for segment in segments]
    mean_size = sum(count.size for count in counts) / max(len(counts), 1)
    weights = _weigh_stems(counts)
    scores = []
    for count in counts:
        # BM25: repetition adds less and less, and a long text must repeat a word more often
        length_share = count.size / max(mean_size, 1.0)
        shares = []
        for word, times in sorted(count.times.items()):
            saturated = times * (_K + 1) / (times + _K * (1 - _B + _B * length_share))
            shares.append(weights[word] * saturated)
        scores.append(fsum(shares))
    best = max(scores, default=0.0) or 1.0
    return [WordMatch(score / best, len(count.times)) for score, count in zip(scores, counts, strict=True)]


def stem(word: str) -> str:
    """A word without its English ending, at least three characters: retries, retrying and retry are one.

    Two letters that were doubled before an ending become one again: `running` is `run`.
    """
    if not word.isascii() or len(word) < 4:
        return word
    word = _drop_plural(word)
    for ending in ("ing", "ed"):
        beginning = word.removesuffix(ending)
        if beginning != word and len(beginning) >= 3:
            return _DOUBLED.sub(r"\1", beginning)
    if word.endswith("e") and len(word) > 3:
        return word[:-1]
    return word


def _drop_plural(word: str) -> str:
    """`retries` becomes `retry`, `files` becomes `file`; `class`, `status` and `analysis` stay."""
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    if word.endswith(("ss", "us", "is")):
        return word
    return word.removesuffix("s")


def _count_words(segment: Segment, prompt_stems: set[str], fold: Callable[[str], str]) -> WordCounts:
    """The words of a prompt in the text, the key and the attributes of a segment."""
    text = "\n".join((segment.key, *segment.attrs.values(), text_of(segment.parts)[:READ]))
    words = _WORD.findall(fold_case(fold(text)))
    times: Tally[str] = Tally()
    for word in words:
        word_stem = stem(word)
        if word_stem in prompt_stems:
            times[word_stem] += 1
    return WordCounts(times, len(words))


def _weigh_stems(counts: Sequence[WordCounts]) -> dict[str, float]:
    """The weight of each stem: the fewer texts have it, the more it weighs."""
    texts_with_stem: Tally[str] = Tally()
    for count in counts:
        texts_with_stem.update(count.times.keys())
    return {word: sqrt((len(counts) + 1) / amount) for word, amount in texts_with_stem.items()}


PRIORITY_KEY = "priority"
"""The key in the `meta` of an attachment that says how its priority was set."""

PROMPT_KEY = "asked"
"""The key in `meta` that marks a session's prompt."""

TYPED_KEY = "typed"
"""The key in the `meta` of a prompt for what was typed, if that differs from what is sent."""


class Judged(NamedTuple):
    """The new priority of an attachment, and why."""

    priority: int
    why: str


class Relevance(msgspec.Struct, frozen=True, kw_only=True):
    """An order by relevance. `reach` is the most by which a priority changes."""

    score: Scorer = score_by_words
    reach: int = 2

    def __call__(self, view: OrderView) -> Iterator[Batch]:
        """The usual order, which sees each attachment with the priority that it has for this prompt.

        The reason of each move says why its attachment was judged so.
        """
        judged = self.judge_entries(view.entries, view.kinds)
        adjusted_view = msgspec.structs.replace(view, entries=_AdjustedEntries(view.entries, judged))
        for batch in ladder(adjusted_view):
            yield tuple(_explain_move(move, judged) for move in batch)

    def judge_entries(self, entries: Sequence[Entry], kinds: Kinds = KINDS) -> dict[int, Judged]:
        """What becomes of each attachment's priority for the last prompt, by position.

        If nothing matches the prompt, nothing is judged, except attachments that came again with it.
        """
        prompt = _find_last_prompt(entries)
        if prompt is None:
            return {}
        content_of_turn = {entry.content for entry in entries if entry.layer is Layer.TURN}
        attached: dict[int, Segment] = {}
        attached_again: list[int] = []
        for index, entry in enumerate(entries):
            if entry.form is Form.OMITTED or not _is_adjustable(entry.segment, kinds):
                continue
            attached[index] = entry.segment
            if entry.layer is not Layer.TURN and entry.content in content_of_turn:
                # attached once more with this prompt, so it matters whatever its words are
                attached_again.append(index)
        judged = self._judge_attached(prompt, attached, kinds)
        for index in attached_again:
            judged[index] = self._judge_match(attached[index], _ATTACHED_AGAIN, kinds)
        return judged

    def rank_turn(self, turn: Sequence[Segment], kinds: Kinds = KINDS) -> list[Segment]:
        """A turn with the priorities with which it is stored, and why. If nothing matches, all stay."""
        segments = list(turn)
        prompt = next((segment for segment in reversed(turn) if segment.meta.get(PROMPT_KEY)), None)
        if prompt is None:
            return segments
        attached = {index: segment for index, segment in enumerate(turn) if _is_adjustable(segment, kinds)}
        for index, judged in self._judge_attached(prompt, attached, kinds).items():
            segment = attached[index]
            if judged.priority == kind_of(kinds, segment).priority:
                continue
            meta: dict[str, Any] = segment.meta | {PRIORITY_KEY: {"by": "relevance", "why": judged.why}}
            segments[index] = msgspec.structs.replace(segment, priority=judged.priority, meta=meta)
        return segments

    def _judge_attached(
        self, prompt: Segment, attached: Mapping[int, Segment], kinds: Kinds
    ) -> dict[int, Judged]:
        """The new priority of each attachment, by position; nothing if none of them matches the prompt."""
        if not attached:
            return {}
        matches = self.score(_prompt_text(prompt), list(attached.values()))
        if all(match.score <= 0 for match in matches):
            return {}
        judged = {}
        for (index, segment), match in zip(attached.items(), matches, strict=True):
            judged[index] = self._judge_match(segment, match, kinds)
        return judged

    def _judge_match(self, segment: Segment, match: WordMatch, kinds: Kinds) -> Judged:
        """The priority for a match. A match of 1 is `reach` more important, a match of 0 `reach` less."""
        usual = kind_of(kinds, segment).priority
        priority = usual
        if usual >= HIGH:
            moved = usual + round(self.reach * (1 - 2 * match.score))
            priority = max(min(moved, LOW), HIGH)
        why = f"priority {usual}"
        if priority != usual:
            why += f", {priority - usual:+d}"
        return Judged(priority, f"{why}: {match.describe()}")


_ATTACHED_AGAIN = WordMatch(1.0, reason="attached again with the prompt")


class _AdjustedEntries(Sequence[Entry]):
    """The entries of a plan, as they are at that moment, with other priorities."""

    def __init__(self, entries: Sequence[Entry], judged: Mapping[int, Judged]) -> None:
        self._entries = entries
        self._judged = judged

    def __getitem__(self, at: Any) -> Any:
        """The entry at a position, or the entries of a slice."""
        if isinstance(at, slice):
            return [self[index] for index in range(*at.indices(len(self)))]
        entry = self._entries[at]
        index = range(len(self))[at]  # a negative position counts from the end
        judged = self._judged.get(index)
        if judged is None:
            return entry
        segment = msgspec.structs.replace(entry.segment, priority=judged.priority)
        return msgspec.structs.replace(entry, segment=segment)

    def __len__(self) -> int:
        return len(self._entries)


def _explain_move(move: Move, judged: Mapping[int, Judged]) -> Move:
    """The move with the reason for its priority. Reasons other than "attachment" stay."""
    one = judged.get(move.at)
    if one is None or move.why != "attachment":
        return move
    return move._replace(why=f"attachment: {one.why}")


def _is_adjustable(segment: Segment, kinds: Kinds) -> bool:
    """Whether nobody decided about an attachment: no pin, and no priority but one that relevance set.

    A priority that relevance set for an earlier prompt may change with the next one.
    """
    if segment.pinned or not kind_of(kinds, segment).attachment:
        return False
    if segment.priority is None:
        return True
    setting = segment.meta.get(PRIORITY_KEY)
    return isinstance(setting, dict) and setting.get("by") == "relevance"


def _find_last_prompt(entries: Sequence[Entry]) -> Segment | None:
    """The last prompt of the user that has words."""
    for entry in reversed(entries):
        if entry.layer is not Layer.PROMPT or entry.role is not Role.USER:
            continue
        # a prompt may be a picture alone; then an earlier one says what the user is after
        if _prompt_text(entry.segment):
            return entry.segment
    return None


def _prompt_text(prompt: Segment) -> str:
    """What the user typed, else what is sent."""
    return str(prompt.meta.get(TYPED_KEY) or text_of(prompt.parts))
