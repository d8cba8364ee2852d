"""A cut that the provider's server makes: it leaves out old tool results, and lamina sends them in full.

Anthropic's API can do that (`clear_tool_uses_20250919`). By itself it clears more with every new tool use, so
that the prompt which the model reads changes with every request, and its cache is lost each time. lamina asks
it to keep one use more each time, so that the same results stay cleared until the next cut. No bytes that
were sent change, so no thinking is unbound. But what was cleared leaves no handle and no name behind, as it
would in a cut of lamina's.

A clearing costs what a cut costs: the prompt is written anew from the first result that is cleared on. So the
two are compared by the same formula (`lamina.core.cut_target`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lamina.core.cut_target import CutLimits, Rates, measure_growth
from lamina.core.entries import find_sent
from lamina.core.envelope import Envelope
from lamina.core.values import Cut, Entry, Form, Ledger, Raw, ServerClearing, Thinking, ToolResult
from lamina.dialects.usage import count_noun
from lamina.fitting.markers import find_entries_before
from lamina.fitting.server_reports import CLEARS

LEAST_KEPT = 3
"""Tool uses that are never cleared: as many as the API keeps if nobody says otherwise."""

PLACEHOLDER = 12
"""Tokens that stand in the place of a result that the server cleared. Nobody has measured it."""


class ClearingPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What the server would clear: the clearing, and the request before and after it, in tokens.

    `cached` stand before the first result that is cleared, which is `first`. `unbinds`: a cut of lamina's at
    the same place would unbind thinking.
    """

    clearing: ServerClearing
    before: int
    after: int
    cached: int
    first: str
    unbinds: bool

    @property
    def cut(self) -> Cut:
        """The cut for the ledger, without its number."""
        uses = count_noun(self.clearing.uses, "tool use")
        return Cut(
            number=0,
            reason=f"{CLEARS}{uses}",
            before=self.before,
            after=self.after,
            first=self.first,
            lowered=self.clearing.uses,
        )


def plan_clearing(envelope: Envelope, limits: CutLimits) -> ClearingPlan | None:
    """What the server would have to clear to reach the target, oldest first; None if it cannot.

    `envelope` is the request with nothing cut. A plan that does not reach the target must free as much as a
    cut has to.
    """
    sent = find_sent(envelope.entries)
    if any(_runs_on_server(entry) for entry in sent):
        return None  # whether the server counts its own tools among the uses is not published
    results = [index for index, entry in enumerate(sent) if _is_result(entry)]
    scale = envelope.tokens / max(_sum_tokens(sent), 1)
    freed = 0.0
    cleared: list[Entry] = []
    for index in results[:-LEAST_KEPT]:
        result = sent[index]
        if result.step == sent[-1].step:
            break  # the model has not read these results yet
        freed += max(result.tokens - PLACEHOLDER, 0) * scale
        cleared.append(result)
        if envelope.tokens - freed <= limits.target:
            break
    if not cleared:
        return None
    after = envelope.tokens - round(freed)
    # Beside the target, it is enough to free as much as a cut has to: otherwise the next one comes at once.
    if after > max(limits.target, limits.trigger - limits.least):
        return None
    first = results[0]
    return ClearingPlan(
        clearing=ServerClearing(until=cleared[-1].ref, uses=len(cleared), tokens=round(freed)),
        before=envelope.tokens,
        after=after,
        cached=round(_sum_tokens(sent[:first]) * scale),
        first=cleared[0].ref,
        unbinds=any(_is_thinking(entry) for entry in sent[first:]),
    )


def _is_result(entry: Entry) -> bool:
    return any(isinstance(part, ToolResult) for part in entry.segment.parts)


def _is_thinking(entry: Entry) -> bool:
    return any(isinstance(part, Thinking) for part in entry.segment.parts)


def _runs_on_server(entry: Entry) -> bool:
    """Whether a block is a call or a result of a tool that the provider runs."""
    raw_parts = (part for part in entry.parts if isinstance(part, Raw))
    return any("tool" in str(part.data.get("type", "")) for part in raw_parts)


def clears_as_before(envelope: Envelope, clearing: ServerClearing) -> bool:
    """Whether the results that the server left out so far stand at the beginning of this request, too.

    If a client has edited or cut off its history, other results would be cleared.
    """
    uses = 0
    for entry in find_sent(envelope.entries):
        if not _is_result(entry):
            continue
        uses += 1
        if entry.ref == clearing.until:
            return uses == clearing.uses and entry.form is not Form.OMITTED
    return False


def is_cheaper(plan: ClearingPlan, own: Envelope, limits: CutLimits, rates: Rates, *, binds: bool) -> bool:
    """Whether the server's clearing costs less than the cut of lamina's own, or spares bound thinking."""
    if binds and plan.unbinds:
        return True
    growth = max(measure_growth(own.entries).tokens, 1)
    own_cost = price_step(own.tokens, _count_cached(own), limits.trigger, growth, rates)
    return price_step(plan.after, plan.cached, limits.trigger, growth, rates) < own_cost


def price_step(after: int, cached: int, trigger: int, growth: int, rates: Rates) -> float:
    """What one step costs on average until the next cut, in input tokens at full price.

    A cut leaves `after` tokens, of which the first `cached` are still in the cache. The rest is written once,
    and everything is read at each step until the trigger is reached again.
    """
    if after >= trigger:
        return float("inf")
    rewritten = max(after - cached, 0)
    steps = max((trigger - after) / growth, 1.0)
    return rates.read * (trigger + after) / 2 + (rates.write - rates.read) * rewritten / steps


def _count_cached(envelope: Envelope) -> int:
    """The tokens before the first entry that a cut of lamina's has changed."""
    if envelope.cut is None:
        return envelope.tokens
    sent = find_sent(envelope.entries)
    unchanged = find_entries_before(envelope.cut, sent, envelope.ledger)
    scale = envelope.tokens / max(_sum_tokens(sent), 1)
    return round(_sum_tokens(unchanged) * scale)


def _sum_tokens(entries: Sequence[Entry]) -> int:
    return sum(entry.tokens for entry in entries)


def record_clearing_cut(envelope: Envelope, plan: ClearingPlan) -> Envelope:
    """The envelope with a cut for what the server clears from now on."""
    ledger: Ledger = envelope.ledger
    cut = msgspec.structs.replace(plan.cut, number=len(ledger.cuts) + 1)
    ledger = msgspec.structs.replace(ledger, clearing=plan.clearing, cuts=(*ledger.cuts, cut))
    return msgspec.structs.replace(envelope, ledger=ledger, cut=cut)
