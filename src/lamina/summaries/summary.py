"""Makes a summary, from choosing what it covers to the segment that is recorded. Read this first.

    choose ──▶ ask ──▶ judge ──▶ compose ──▶ try it out ──▶ the segment
                 ▲        │ refused: asked again, with what was wrong, a bounded number of times
                 └────────┘

The model writes only the text. lamina decides what the segment covers, and adds the index of the covered
segments and the fence around the whole. The caller records it, so a conversation is replayed without a model.

`compact` and `cover_if_due` record summaries for a session: when the user asks for one (`/compact`), and when
a cut would fold. They know only the few things of a session that `SummarizedSession` lists.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal, Protocol

import msgspec

from lamina.core.build import EMPTY_LEDGER
from lamina.core.digests import measure_digest, write_digest
from lamina.core.hashing import digest as hashed
from lamina.core.hashing import handle
from lamina.core.run_text import Reader, ReadSegment, RunText
from lamina.core.text.arguments import pick_telling_argument
from lamina.core.text.characters import WHITE_SPACE, is_blank, is_printable
from lamina.core.text.excerpts import NAME, clean_text, to_one_line
from lamina.core.text.tags import make_inert, wrap_in_tag
from lamina.core.values import Entry, Ledger, Segment, Thinking, ToolCall
from lamina.core.wording import ARGUMENT_LIMIT, describe_segment, guard, text_of
from lamina.segments import summary
from lamina.summaries.choice import CoveredEntries, choose, name_of
from lamina.summaries.judge import collect_facts, find_problems
from lamina.summaries.questions import QuestionRun, Unanswered
from lamina.summaries.values import Bounds, Summarizer, SummaryOutcome, Terms, build_log

SHORTEST = 100
"""The fewest tokens that a summary's text may have: fewer say nothing."""

LONGEST = 2_000
"""The most tokens that a summary's text may have: more are not read."""

SHARE = 8
"""A summary's text takes one part in `SHARE` of a window, the conversation's or the summarizer's."""

SLACK = 2
"""A text may have this many times the tokens that were asked for, since models do not count well."""

GAIN = 4
"""A summary, with its index, frees at least one part in `GAIN` of what it covers."""

NOTES = 12
"""How many reasons against one text are listed."""

SMALL_DIGEST = 400
"""Characters of a digest, if a longer one would not be smaller than what it covers."""

USUAL = Bounds()

PROMPT_EXCERPT = 2_000
"""How many characters of what is coming the summarizer sees."""

INSTRUCTION = """\
Write a summary of this conversation so far, to stand in place of its old replies, tool calls, results and \
attachments. The user's own messages stay as they are, and so does what came after {last}.
Say what was done and what came of it, what was tried and failed, what was decided and why, which facts were \
found, what is unfinished, and what comes next. At most {words} words, plain text, no introduction, no tool \
calls.
Name each of these, files and sources exactly as they are written here:
{wanted}"""

_THOUGHT_MARK = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE | re.ASCII)
"""The tags around what a model thinks aloud: `<think>`, `</thinking>`."""


async def summarize(
    log: Sequence[Segment],
    write: Summarizer,
    *,
    terms: Terms,
    ledger: Ledger = EMPTY_LEDGER,
    coming: Sequence[Segment] = (),
    instructions: str = "",
    everything: bool = False,
    bounds: Bounds = USUAL,
) -> SummaryOutcome:
    """Summarise what a cut would fold, in a model's words. If there is no summary, a note says why.

    `coming` is what is added to the log after the summary. `everything`: all that is old, due or not.
    Record the segment right after `log`. Then the next build needs no model.
    """
    chosen = choose(log, terms=terms, ledger=ledger, coming=coming, everything=everything)
    if not chosen.entries:
        return SummaryOutcome(notes=(f"nothing was summarised: {chosen.why}",))
    draft = SummaryDraft(chosen, log, terms=terms, ledger=ledger, coming=coming, window=bounds.window)
    questions = QuestionRun(write, terms=terms, bounds=bounds, log=log, ledger=ledger)
    return await draft.write(questions, instructions=instructions)


def without_thoughts(text: str) -> str:
    """An answer without what its model thought aloud. A thought without an end stays.

    Of `<think>Hm.</think>The spec is read.` it is `The spec is read.`
    """
    pieces: list[str] = []
    end_of_last = 0
    thought_start: int | None = None
    for mark in _THOUGHT_MARK.finditer(text):
        closes = bool(mark[1])
        if not closes and thought_start is None:
            thought_start = mark.start()
        elif closes and thought_start is not None:
            pieces.append(text[end_of_last:thought_start])
            end_of_last = mark.end()
            thought_start = None
    pieces.append(text[end_of_last:])
    return "".join(pieces)


def summarize_by_digest(
    log: Sequence[Segment], *, terms: Terms, ledger: Ledger = EMPTY_LEDGER
) -> SummaryOutcome:
    """Summarise everything that is old, in the words of the deterministic digest.

    If the digest is not smaller than what it covers, shorter ones are tried.
    """
    chosen = choose(log, terms=terms, ledger=ledger, everything=True)
    if not chosen.entries:
        return SummaryOutcome(notes=(f"nothing was summarised: {chosen.why}",))
    draft = SummaryDraft(chosen, log, terms=terms, ledger=ledger)
    room = chosen.tokens
    if terms.budget is not None:
        room = terms.budget.window
    outcome = SummaryOutcome()
    for limit in (measure_digest(room), SMALL_DIGEST, 0):
        outcome = draft.try_text(_write_digest(chosen.entries, limit, terms), by="digest")
        if outcome.segment is not None:
            return outcome
    return outcome


def _write_digest(entries: Sequence[Entry], limit: int, terms: Terms) -> str:
    """Write a digest as one text: the user's words, then what was done."""
    segments = [ReadSegment(entry.segment) for entry in entries]
    turns = [entry.turn + 1 for entry in entries]
    run_text = RunText(segments, turns=turns, reader=Reader(terms.options.kinds))
    texts = write_digest(run_text, limit)
    return "\n".join(filter(None, (texts.words, texts.notes)))


class SummaryDraft:
    """A summary in the making: what it covers and must name, and how its text becomes a segment.

    `most` is how many tokens the model's text may have, and `task` the question to the model: it may name the
    last segment, what is coming, the number of words, and what is wanted.
    """

    def __init__(
        self,
        chosen: CoveredEntries,
        log: Sequence[Segment],
        *,
        terms: Terms,
        ledger: Ledger,
        coming: Sequence[Segment] = (),
        window: int | None = None,
        task: str = INSTRUCTION,
    ) -> None:
        self.chosen = chosen
        self.log = log
        self.terms = terms
        self.ledger = ledger
        self.coming = coming
        self.task = task
        self.prompt = "\n".join(text_of(segment.parts) for segment in coming)
        self.required = collect_facts([entry.segment for entry in chosen.entries])
        self.index = write_index(chosen, terms)
        self.most = self._count_most(window)

    async def write(self, questions: QuestionRun, *, instructions: str = "") -> SummaryOutcome:
        """Ask for the text until it can be used, as often as the bounds allow.

        The second time, the question says what was wrong with the first text.
        """
        if self.most < SHORTEST:
            return self._refuse("no model was asked: a summary would not be smaller")
        reasons: list[str] = []
        for _ in range(questions.bounds.tries):
            try:
                instruction = self._write_instruction(instructions, reasons)
                text = await questions.write_summary(self.chosen.entries, instruction, most=self.most)
            except Unanswered as problem:
                reasons = [str(problem)]
                continue
            outcome = self._judge_text(clean_text(without_thoughts(text)), instructions)
            if outcome.segment is not None:
                return msgspec.structs.replace(outcome, questions=questions.asked)
            reasons = list(outcome.notes)
        refused = self._refuse(*(f"the model's summary was not used: {reason}" for reason in reasons))
        return msgspec.structs.replace(refused, questions=questions.asked)

    def _refuse(self, *notes: str, after: int = 0) -> SummaryOutcome:
        return SummaryOutcome(before=self.chosen.tokens, after=after, notes=notes)

    def _write_instruction(self, instructions: str, reasons: Sequence[str]) -> str:
        """What the model is asked to write, with the reasons against its first text, if there are any.

        What the text must name stands behind a fence.
        """
        last = self.chosen.entries[-1]
        lines = "\n".join(self.required.lines()) or "- (nothing in particular)"
        text = self.task.format(
            last=f"{make_inert(describe_segment(last.segment), 80)} ({make_inert(name_of(last), 80)})",
            prompt=to_one_line(self.prompt, PROMPT_EXCERPT),
            words=self.most * 2 // 3,
            wanted=wrap_in_tag("excerpt", {"source": "what to name"}, guard(lines, self.terms.options.kinds)),
        )
        if not is_blank(instructions):
            text += f"\nThe user asks in addition: {instructions.strip(WHITE_SPACE)}"
        if reasons:
            guarded = guard("; ".join(reasons), self.terms.options.kinds)
            text += f"\nYour first text was refused: {guarded}"
        return text

    def _judge_text(self, text: str, instructions: str) -> SummaryOutcome:
        """The outcome of a model's text, with every reason against it as a note.

        A text that is a little too long is used. One that is much too long frees too little.
        """
        source = "\n".join(text_of(entry.segment.parts) for entry in self.chosen.entries)
        reasons = find_problems(text, self.required, source=f"{source}\n{instructions}")
        if len(reasons) > NOTES:
            reasons = [*reasons[:NOTES], f"and {len(reasons) - NOTES} more like these"]
        if reasons:
            return self._refuse(*reasons)
        size = self.terms.counter.count(text)
        if size > SLACK * self.most:
            return self._refuse(f"it has {size:,} tokens, not {self.most:,}")
        return self.try_text(text, by="model")

    def try_text(self, text: str, *, by: Literal["model", "digest", "earlier"]) -> SummaryOutcome:
        """Build with the segment in its place: it must cover exactly what was chosen, and free enough.

        If another segment has a name that the summary covers, it would stand for that one too.
        """
        before = self.chosen.tokens
        segment = self._compose(text, by)
        envelope = build_log([*self.log, segment, *self.coming], self.terms, self.ledger)
        covered = {entry.ref for entry in envelope.entries if entry.why == f"covered by {segment.key}"}
        if covered != {entry.ref for entry in self.chosen.entries}:
            return self._refuse("it would not stand for what it says")
        after = envelope.entry(segment.key).tokens
        if after * GAIN > before * (GAIN - 1):
            return self._refuse(f"it has {after:,} tokens, what it stands for {before:,}", after=after)
        return SummaryOutcome(segment=segment, by=by, before=before, after=after)

    def _compose(self, text: str, by: str) -> Segment:
        """The segment: text and index, behind a fence that neither can close."""
        names = self.chosen.names
        options = self.terms.options
        body = text
        if self.index:
            body = f"{text}\n{self.index}"
        if not options.wording.tagged:  # a tagged wording fences every segment by itself
            body = wrap_in_tag(
                "progress_summary", {"original_count": str(len(names))}, guard(body, options.kinds)
            )
        return summary(body, covers=names, key=f"cover-{hashed(names)[:12]}", meta={"summary": {"by": by}})

    def _count_most(self, window: int | None) -> int:
        """How many tokens the model's text may have, so that enough is freed."""
        counter = self.terms.counter
        fence = wrap_in_tag("progress_summary", {"original_count": "000"}, self.index)
        overhead = counter.count(fence) + counter.framing.message + counter.framing.part + 8
        amounts = [LONGEST, self.chosen.tokens * (GAIN - 1) // GAIN - overhead]
        if window is not None:
            amounts.append(max(window // SHARE, SHORTEST))
        if self.terms.budget is not None:
            amounts.append(max(self.terms.budget.window // SHARE, SHORTEST))
        return min(amounts)


def write_index(chosen: CoveredEntries, terms: Terms) -> str:
    """List every covered segment by its key.

    A call is listed with its result, and equal ones share a line. Thinking is not listed.
    """
    if not terms.options.wording.handles:
        return ""
    keys_by_line: dict[str, list[str]] = {}
    for entry in chosen.entries:
        description = _describe_entry(entry)
        if description:
            keys_by_line.setdefault(description, []).append(_recall_key(entry))
    if not keys_by_line:
        return ""
    lines = ["In full, by key:"]
    for description, keys in keys_by_line.items():
        lines.append(f"- {description}: {', '.join(dict.fromkeys(keys))}")
    return "\n".join(lines)


def _recall_key(entry: Entry) -> str:
    """A name that fits on a line and can be recalled.

    A path such as `docs/spec.md` is its own key. A key with a line break, or a very long one, is not used.
    """
    key = entry.segment.key
    if key and is_printable(key) and len(key) <= NAME:
        return key
    return handle(entry.content)


def _describe_entry(entry: Entry) -> str:
    """What the index says about an entry, or "" if it is not listed.

    A result is described by its call: "read_file src/a.py". Short calls and thoughts are not listed.
    """
    first = next(iter(entry.segment.parts), None)
    if isinstance(first, Thinking):
        return ""
    if isinstance(first, ToolCall) and len(first.arguments) < ARGUMENT_LIMIT:
        return ""
    if entry.asked is not None:
        return make_inert(f"{entry.asked.name} {pick_telling_argument(entry.asked.arguments)}", 80)
    if isinstance(first, ToolCall):
        return make_inert(f"{first.name} {pick_telling_argument(first.arguments)}, its arguments", 80)
    return make_inert(entry.segment.kind, 80)


class SummarizedSession(Protocol):
    """What a summary needs of a session. `terms` are what it builds with; `add` records a segment."""

    @property
    def log(self) -> tuple[Segment, ...]: ...
    @property
    def ledger(self) -> Ledger: ...
    @property
    def terms(self) -> Terms: ...
    async def add(self, *segments: Segment, key: str = "") -> Any: ...


async def compact(
    session: SummarizedSession,
    write: Summarizer | None = None,
    *,
    instructions: str = "",
    bounds: Bounds = USUAL,
) -> SummaryOutcome:
    """Summarise everything that is old, now, and record the summary: what a user means by /compact.

    `instructions` are the user's, for the model. Without a model, or if its text cannot be used, the
    deterministic digest is recorded instead, and `notes` say why. The steps that a cut spares stay in full.
    """
    outcome = SummaryOutcome(notes=("there is no model to ask",))
    if write is not None:
        outcome = await summarize(
            session.log,
            write,
            terms=session.terms,
            ledger=session.ledger,
            instructions=instructions,
            everything=True,
            bounds=bounds,
        )
    if outcome.segment is None:
        digest = summarize_by_digest(session.log, terms=session.terms, ledger=session.ledger)
        notes = tuple(dict.fromkeys(outcome.notes + digest.notes))
        outcome = msgspec.structs.replace(digest, questions=outcome.questions, notes=notes)
    return await _record_summary(session, outcome)


async def cover_if_due(
    session: SummarizedSession, write: Summarizer, *, coming: Sequence[Segment] = (), bounds: Bounds = USUAL
) -> SummaryOutcome:
    """Record a model's summary if a cut would fold once `coming` is added. Call it before that.

    If the summary cannot be used, nothing is recorded: the cut folds under its digest, and `notes` say why.
    """
    outcome = await summarize(
        session.log, write, terms=session.terms, ledger=session.ledger, coming=coming, bounds=bounds
    )
    return await _record_summary(session, outcome)


async def _record_summary(session: SummarizedSession, outcome: SummaryOutcome) -> SummaryOutcome:
    """Add the summary to the session, with its sizes and notes in its `meta`."""
    if outcome.segment is None:
        return outcome
    description = outcome.segment.meta["summary"] | {"before": outcome.before, "after": outcome.after}
    if outcome.notes:
        description["notes"] = list(outcome.notes)
    summary = msgspec.structs.replace(outcome.segment, meta={"summary": description})
    await session.add(summary)
    return msgspec.structs.replace(outcome, segment=summary)
