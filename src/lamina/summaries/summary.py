"""A summary, from choosing what it stands for to the segment that is recorded: read this first.

    choose ──▶ ask ──▶ judge ──▶ compose ──▶ try it out ──▶ the segment
                 ▲        │ refused: asked again, with what was wrong, a bounded number of times
                 └────────┘

The words are a model's; what the segment covers, the index of what it stands for, and the fence around it
are not. Recording it is the caller's, so a conversation is replayed without any model.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from lamina.core.build import EMPTY, build
from lamina.core.digests import digest
from lamina.core.folds import extra
from lamina.core.hashing import digest as hashed
from lamina.core.hashing import handle
from lamina.core.text.arguments import telling
from lamina.core.text.characters import WHITE_SPACE, is_blank, is_printable
from lamina.core.text.gist import NAME, clean
from lamina.core.text.tags import inert, tag
from lamina.core.values import Entry, Ledger, Segment, Thinking, ToolCall
from lamina.core.wording import ARGUMENT_LIMIT, described, guard, text_of
from lamina.segments import summary
from lamina.summaries.choice import Chosen, choose, name_of
from lamina.summaries.judge import facts, problems
from lamina.summaries.questions import QuestionRun, Unanswered
from lamina.summaries.values import Bounds, Summarizer, SummaryOutcome, Terms

SHORTEST, LONGEST = 100, 2_000
"""Tokens of a summary's own words: less says nothing, more is not read."""

SHARE = 8
"""Of a window, the conversation's or the summarizer's: a summary's words take one part in `SHARE` of it."""

SLACK = 2
"""How many times the tokens that were asked for a text may have: models do not count well."""

GAIN = 4
"""A summary, with its index, frees at least one part in `GAIN` of what it stands for."""

USUAL = Bounds()

INSTRUCTION = """\
Write a summary of this conversation so far, to stand in place of its old replies, tool calls, results and \
attachments. The user's own messages stay as they are, and so does what came after {last}.
Say what was done and what came of it, what was tried and failed, what was decided and why, which facts were \
found, what is unfinished, and what comes next. At most {words} words, plain text, no introduction, no tool \
calls.
Name each of these, files and sources exactly as they are written here:
{wanted}"""

_THOUGHT_MARK = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE | re.ASCII)
NOTES = 12
"""How many reasons against one text are told."""

SMALL_DIGEST = 400
"""Characters of a digest where a longer one would not be smaller than what it stands for."""


async def summarized(
    log: Sequence[Segment],
    write: Summarizer,
    *,
    terms: Terms,
    ledger: Ledger = EMPTY,
    coming: Sequence[Segment] = (),
    instructions: str = "",
    everything: bool = False,
    bounds: Bounds = USUAL,
) -> SummaryOutcome:
    """A segment that stands for what a cut would fold, in a model's words; or none, and a note why.

    `coming` is what is added to the log after the summary. `everything`: all that is old, due or not.
    Record the segment right after `log`: then the next build needs no model.
    """
    chosen = choose(log, terms=terms, ledger=ledger, coming=coming, everything=everything)
    if not chosen.entries:
        return SummaryOutcome(notes=(f"nothing was summarised: {chosen.why}",))
    draft = SummaryDraft(chosen, log, terms=terms, ledger=ledger, coming=coming, window=bounds.window)
    if draft.most < SHORTEST:
        return SummaryOutcome(
            before=chosen.tokens, notes=("no model was asked: a summary would not be smaller",)
        )
    reader = QuestionRun(write, log, terms=terms, ledger=ledger, bounds=bounds)
    found: list[str] = []
    for _ in range(bounds.tries):
        try:
            question = draft.instruction(instructions, found)
            text = await reader.told(chosen.entries, question, most=draft.most)
        except Unanswered as problem:
            found = [str(problem)]
            continue
        outcome = draft.judged(clean(without_thoughts(text)), instructions)
        if outcome.segment is not None:
            return msgspec.structs.replace(outcome, asked=reader.asked)
        found = list(outcome.notes)
    notes = tuple(f"the model's summary was not used: {problem}" for problem in found)
    return SummaryOutcome(before=chosen.tokens, asked=reader.asked, notes=notes)


def without_thoughts(text: str) -> str:
    """An answer without what its model thought aloud, in one pass; a thought without an end stays."""
    kept: list[str] = []
    at = 0
    thinking: int | None = None
    for tag_found in _THOUGHT_MARK.finditer(text):
        closes = bool(tag_found[1])
        if not closes and thinking is None:
            thinking = tag_found.start()
        elif closes and thinking is not None:
            kept.append(text[at:thinking])
            at, thinking = tag_found.end(), None
    return "".join([*kept, text[at:]])


def digested(log: Sequence[Segment], *, terms: Terms, ledger: Ledger = EMPTY) -> SummaryOutcome:
    """The same for all that is old, in the words of the deterministic digest."""
    chosen = choose(log, terms=terms, ledger=ledger, everything=True)
    if not chosen.entries:
        return SummaryOutcome(notes=(f"nothing was summarised: {chosen.why}",))
    draft = SummaryDraft(chosen, log, terms=terms, ledger=ledger)
    segments = [entry.segment for entry in chosen.entries]
    room = terms.budget.window if terms.budget else chosen.tokens
    texts = (_digest_text(segments, limit, terms) for limit in (extra(room), SMALL_DIGEST, 0))
    outcomes = [draft.tried(text, by="digest") for text in texts]
    return next((outcome for outcome in outcomes if outcome.segment is not None), outcomes[-1])


def _digest_text(segments: Sequence[Segment], limit: int, terms: Terms) -> str:
    """A digest as one text: the user's words, then what was done."""
    kinds = terms.options.kinds
    text = digest(segments, words_limit=limit * 3 // 4, notes_limit=limit // 4, kinds=kinds)
    return "\n".join(filter(None, text))


class SummaryDraft:
    """A summary in the making: what it stands for and must name, and how its words become a segment."""

    def __init__(
        self,
        chosen: Chosen,
        log: Sequence[Segment],
        *,
        terms: Terms,
        ledger: Ledger,
        coming: Sequence[Segment] = (),
        window: int | None = None,
    ) -> None:
        self.chosen, self.log, self.terms, self.ledger, self.coming = chosen, log, terms, ledger, coming
        self.wanted = facts([entry.segment for entry in chosen.entries])
        self.index = index_of(chosen, terms)
        self.most = self._most(window)

    def instruction(self, instructions: str, refused: Sequence[str]) -> str:
        """What the model is told to do; the second time, with what was wrong with its first text."""
        text = self.question()
        if not is_blank(instructions):
            text += f"\nThe user asks in addition: {instructions.strip(WHITE_SPACE)}"
        if refused:
            said = guard("; ".join(refused), self.terms.options.kinds)
            text += f"\nYour first text was refused: {said}"
        return text

    def question(self) -> str:
        """What the model is asked to write."""
        last = self.chosen.entries[-1]
        return INSTRUCTION.format(
            last=f"{inert(described(last.segment), 80)} ({inert(name_of(last), 80)})",
            words=self.most * 2 // 3,
            wanted=self.to_name(),
        )

    def to_name(self) -> str:
        """What the text must name, fenced."""
        lines = "\n".join(self.wanted.lines()) or "- (nothing in particular)"
        return tag("excerpt", {"source": "what to name"}, guard(lines, self.terms.options.kinds))

    def judged(self, text: str, instructions: str) -> SummaryOutcome:
        """The outcome of a model's text, with every reason against it as a note."""
        source = "\n".join(text_of(entry.segment.parts) for entry in self.chosen.entries)
        if found := problems(text, self.wanted, source=f"{source}\n{instructions}"):
            more = [f"and {len(found) - NOTES} more like these"] if len(found) > NOTES else []
            return SummaryOutcome(before=self.chosen.tokens, notes=(*found[:NOTES], *more))
        if (size := self.terms.counter.count(text)) > SLACK * self.most:
            return SummaryOutcome(
                before=self.chosen.tokens, notes=(f"it has {size:,} tokens, not {self.most:,}",)
            )
        return self.tried(text, by="model")

    def tried(self, text: str, *, by: Literal["model", "digest", "earlier"]) -> SummaryOutcome:
        """The segment in its place: it must cover exactly what was chosen, and free enough."""
        made, terms, before = self._composed(text, by), self.terms, self.chosen.tokens
        envelope = build(
            [*self.log, made, *self.coming],
            head=terms.head,
            ledger=self.ledger,
            counter=terms.counter,
            options=terms.options,
        )
        covered = {entry.ref for entry in envelope.entries if entry.why == f"covered by {made.key}"}
        if covered != {entry.ref for entry in self.chosen.entries}:
            return SummaryOutcome(before=before, notes=("it would not stand for what it says",))
        after = envelope.entry(made.key).tokens
        if after * GAIN > before * (GAIN - 1):
            note = f"it has {after:,} tokens, what it stands for {before:,}"
            return SummaryOutcome(before=before, after=after, notes=(note,))
        return SummaryOutcome(segment=made, by=by, before=before, after=after)

    def _composed(self, text: str, by: str) -> Segment:
        """The segment: words and index, behind a fence that neither can close."""
        names, options = self.chosen.names, self.terms.options
        body = f"{text}\n{self.index}" if self.index else text
        if not options.wording.tagged:  # which fences every segment by itself
            body = tag("progress_summary", {"original_count": str(len(names))}, guard(body, options.kinds))
        return summary(body, covers=names, key=f"cover-{hashed(names)[:12]}", meta={"summary": {"by": by}})

    def _most(self, window: int | None) -> int:
        """Tokens that the model's own words may have."""
        count, framing = self.terms.counter.count, self.terms.counter.framing
        fence = tag("progress_summary", {"original_count": "000"}, self.index)
        around = count(fence) + framing.message + framing.part + 8
        free = self.chosen.tokens * (GAIN - 1) // GAIN - around
        windows = [window, self.terms.budget.window if self.terms.budget else None]
        shares = [max(each // SHARE, SHORTEST) for each in windows if each is not None]
        return min(free, *shares, LONGEST)


def index_of(chosen: Chosen, terms: Terms) -> str:
    """Every covered segment by its key; a call with its result, equal ones together. Thinking has no line."""
    if not terms.options.wording.handles:
        return ""
    lines: dict[str, list[str]] = {}
    for entry in chosen.entries:
        if what := _line(entry):
            lines.setdefault(what, []).append(_key(entry))
    rows = (f"- {what}: {', '.join(dict.fromkeys(names))}" for what, names in lines.items())
    return "\n".join(["In full, by key:", *rows]) if lines else ""


def _key(entry: Entry) -> str:
    """A name that stands on a line and can be recalled."""
    key = entry.segment.key
    return key if key and is_printable(key) and len(key) <= NAME else handle(entry.content)


def _line(entry: Entry) -> str:
    first = entry.segment.parts[0] if entry.segment.parts else None
    if isinstance(first, Thinking) or (isinstance(first, ToolCall) and len(first.arguments) < ARGUMENT_LIMIT):
        return ""
    if entry.asked is not None:
        return inert(f"{entry.asked.name} {telling(entry.asked.arguments)}", 80)
    if isinstance(first, ToolCall):
        return inert(f"{first.name} {telling(first.arguments)}, its arguments", 80)
    return inert(entry.segment.kind, 80)
