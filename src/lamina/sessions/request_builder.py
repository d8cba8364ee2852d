"""What a session works with: how it is set up, what the application gave it, and the core's build.

A desk belongs to one conversation. It changes nothing that is kept: log and state go in, an envelope or a
request comes out.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from lamina.caches import rules_for
from lamina.context.gather import gather
from lamina.context.port import GatheredSegments, Source
from lamina.context.relevance import Ranked, Relevance
from lamina.core.build import build
from lamina.core.cut_target import limits
from lamina.core.envelope import Envelope
from lamina.core.history_window import LastN
from lamina.core.kinds import row
from lamina.core.memo import Memo
from lamina.core.options import Options
from lamina.core.tokens import Counter
from lamina.core.values import Form, Segment, SentMark
from lamina.core.wording import text_of
from lamina.dialects.port import CheckMemo
from lamina.dialects.sending import broken_rules, refused, settled
from lamina.errors import BadInput, BudgetExceeded
from lamina.fitting.markers import Breakpoints, check_breakpoints, marked
from lamina.models.counters import counter_for
from lamina.segments import user
from lamina.sessions.attachments import LEFT_OUT, foreign
from lamina.sessions.mentioned_attachments import Mentioned
from lamina.sessions.redaction import Redact, redacted
from lamina.sessions.setup import Setup, budget_for, head_for, options_in, speaks
from lamina.sessions.state import SessionState
from lamina.sessions.turns import ASKED, TYPED

Template = str | Callable[[str], str]
"""Makes what is sent of what was typed: a function, or a text with {prompt} in it."""

Clock = Callable[[], datetime]


SAID_ALREADY = (
    "{count} messages that a source found stand in this conversation already, and were left out; "
    "to send only the last ones, open it with history=LastN({count})"
)


def utc_now() -> datetime:
    return datetime.now(UTC)


class Ways(msgspec.Struct, frozen=True, kw_only=True):
    """What an application gives a session each time it opens it: functions and such, which are not kept."""

    sections: tuple[Segment, ...] = ()
    asked_sections: Callable[[], Awaitable[tuple[Segment, ...]]] | None = None
    """Gives the sections anew, where a part of them comes from a function."""
    sources: tuple[Source, ...] = ()
    redact: Redact | None = None
    template: Template | None = None
    clock: Clock | None = utc_now
    root: Path | None = None
    mentioned: Mentioned | None = None
    breakpoints: Breakpoints = "plan"
    counter: Counter | None = None
    options: Options | None = None


class RequestBuilder:
    """One conversation's tools, laid out."""

    def __init__(self, setup: Setup, ways: Ways, workspace: str) -> None:
        self.setup, self.ways, self.workspace = setup, ways, workspace
        check_breakpoints(ways.breakpoints)
        self.dialect = speaks(setup)
        own = head_for(setup, self.dialect)
        self.head, self.left = own.head, own.left
        self.budget, self.counter = budget_for(setup, self.head), ways.counter or counter_for(setup.model)
        self.options = options_in(setup, self.dialect, self.head, salt=workspace, more=ways.options)
        self.relevance = self.options.order if isinstance(self.options.order, Relevance) else None
        self._memo, self._checked = Memo(), CheckMemo()

    async def ask_sections(self) -> tuple[str, ...]:
        """Brings the sections up to date; a note if that fails, and then they stay as they were."""
        if self.ways.asked_sections is None:
            return ()
        try:
            sections = await self.ways.asked_sections()
        except Exception as error:  # noqa: BLE001 - whatever the function does wrong, the turn goes on
            told = str(error) or type(error).__name__
            return (f"the system text stays as it was: {told[:200]}",)
        self.ways = msgspec.structs.replace(self.ways, sections=sections)
        return ()

    def set_history(self, history: LastN | Literal["all"]) -> None:
        self.setup = self.setup.over({"history": history})
        self.options = msgspec.structs.replace(self.options, window=self.setup.history)

    def build(
        self, log: Sequence[Segment], state: SessionState, *, idle: float = 0, asked: bool = False
    ) -> Envelope:
        """The request for a log; if none is possible, the error says in which layer the most of it stands.

        `asked`: it is the first request for a prompt, which may make a cut where freshness is wanted.
        """
        try:
            built = build(
                log,
                head=self.head,
                budget=self.budget,
                ledger=state.ledger,
                counter=self.counter,
                idle=idle,
                options=self.options,
                memo=self._memo,
            )
        except BudgetExceeded as full:
            raise self._placed(full, log, state) from None
        wanted = asked and built.cut is None and self.relevance and self.relevance.freshness == "fresh"
        if wanted:
            built = self._fresh(built, log, state)
        return settled(built, self.dialect, before=state.ledger.mark, memo=self._memo)

    async def ranked(self, turn: Sequence[Segment], log: Sequence[Segment]) -> Ranked:
        """A turn with the priorities that its attachments have for its prompt."""
        ranks = self.relevance
        return Ranked(list(turn)) if ranks is None else await ranks.ranked(turn, log, self.options.kinds)

    def render(self, envelope: Envelope, before: SentMark | None) -> dict[str, Any]:
        """The envelope in the words of the dialect, with its cache markers.

        Raises InvalidRequest where the API would refuse it, and mending would mean to invent what is said.
        """
        if not self.setup.model and self.setup.own is None:
            hint = "give one to Session.open"
            raise BadInput("there is no model", place="request", hint=hint)
        rules = rules_for(str(self.head.parameters.get("model", "")), dialect=self.dialect.name)
        done = marked(
            self.dialect.render(envelope),
            envelope,
            self.dialect,
            breakpoints=self.ways.breakpoints,
            counter=self.counter,
            before=before,
            rules=rules,
        )
        violations = broken_rules(done.request, self.dialect, self._checked)
        if violations:
            raise refused(done.request, violations)
        return done.request

    def room(self, envelope: Envelope | None) -> int | None:
        """Tokens that are left before the next cut is due."""
        if self.budget is None:
            return None
        entries = envelope.entries if envelope else ()
        tight = limits(self.budget, self.head, entries, self.options.rates)
        return max(tight.trigger - (envelope.tokens if envelope else 0), 0)

    async def gathered(self, prompt: str, envelope: Envelope | None) -> GatheredSegments:
        """What the sources find for a prompt, in the order of the sources; one that fails leaves a note."""
        return await gather(self.ways.sources, prompt, self.room(envelope))

    def own(self, found: Iterable[Segment]) -> tuple[list[Segment], list[str]]:
        """What belongs to this workspace, and a note for each that does not."""
        given = list(found)
        mine = [segment for segment in given if not foreign(segment, self.workspace)]
        return mine, [LEFT_OUT] * (len(given) - len(mine))

    def unsaid(self, found: Sequence[Segment], log: Sequence[Segment]) -> tuple[list[Segment], list[str]]:
        """What sources found, without messages that the conversation has already, and a note about those."""
        said: dict[str, list[Segment]] = {}
        if any(self._is_message(one) for one in found):
            for segment in log:
                if self._is_message(segment):
                    said.setdefault(text_of(segment.parts), []).append(segment)
        new = [one for one in found if one not in said.get(text_of(one.parts), ())]
        left_out = len(found) - len(new)
        return new, [SAID_ALREADY.format(count=left_out)] if left_out else []

    def _is_message(self, segment: Segment) -> bool:
        kind = row(self.options.kinds, segment)
        return not (kind.attachment or kind.section)

    def ready(self, segments: Iterable[Segment]) -> list[Segment]:
        """Segments as they may be kept: redacted, with the time at which they came."""
        now = self.ways.clock().isoformat() if self.ways.clock else ""
        clean = redacted(segments, self.ways.redact)
        return [one if one.at else msgspec.structs.replace(one, at=now) for one in clean]

    def _fresh(self, built: Envelope, log: Sequence[Segment], state: SessionState) -> Envelope:
        """The request without the full text of what is not about the prompt, by a cut that tells its cost."""
        if self.relevance is None or self.budget is None:
            return built
        due = msgspec.structs.replace(self.budget, trigger=0.001, target=0.001, least=0, keep_last=0)
        options = msgspec.structs.replace(self.options, order=self.relevance.outdated)
        made = build(
            log, head=self.head, budget=due, ledger=state.ledger, counter=self.counter, options=options
        )
        if made.cut is None:
            return built
        lost, gain = _lost(built, made, state.ledger.mark), built.tokens - made.tokens
        reason = f"fresh for the prompt: {gain:,} tokens fewer, {lost:,} cached ones lost"
        cut = msgspec.structs.replace(made.cut, reason=reason, floor=False)
        ledger = msgspec.structs.replace(made.ledger, cuts=(*made.ledger.cuts[:-1], cut))
        return msgspec.structs.replace(made, cut=cut, ledger=ledger)

    def _placed(self, full: BudgetExceeded, log: Sequence[Segment], state: SessionState) -> BudgetExceeded:
        whole = build(log, head=self.head, ledger=state.ledger, counter=self.counter, options=self.options)
        amounts = Tally[str]()
        named = {key for key, _ in full.segments}
        for entry in whole.entries:
            if entry.segment.key in named or entry.ref in named:
                amounts[entry.layer.value] += entry.tokens
        most = f"mostly the {amounts.most_common(1)[0][0]} layer" if amounts else ""
        reason = "; ".join(filter(None, (full.reason, most)))
        return BudgetExceeded(floor=full.floor, room=full.room, segments=full.segments, reason=reason)


def _lost(built: Envelope, made: Envelope, last: SentMark | None) -> int:
    """Tokens of the last request that stand behind the first difference."""
    kept = {entry.prefix for entry in made.entries}
    sent = [entry for entry in built.entries if entry.form is not Form.OMITTED]
    return sum(e.tokens for e in sent[: last.sent if last else 0] if e.prefix not in kept)


def prompt_of(typed: str, template: Template | None) -> Segment:
    """The prompt as it is sent; where that is not what was typed, both are kept."""
    sent = _filled(typed, template)
    return user(sent, meta={ASKED: True} | ({TYPED: typed} if sent != typed else {}))


def _filled(typed: str, template: Template | None) -> str:
    if template is None:
        return typed
    if not isinstance(template, str):
        return template(typed)
    if "{prompt}" not in template:
        raise BadInput("there is no {prompt} in it", place="template", hint="say where the prompt stands")
    return template.replace("{prompt}", typed)
