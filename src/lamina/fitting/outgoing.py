"""Writes an envelope as the request that leaves: render, limit the output, mark, check, ask the server.

A request in which nothing was changed is not rendered. It is sent as it came, so that `fit_request` returns
the same object. One that breaks a rule of the provider as it came is rendered after all, because rendering
mends what can be mended. If the rendered request still breaks a rule, `InvalidRequest` is raised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from lamina.caches.marker_plan import MarkerPlan
from lamina.core.envelope import Envelope
from lamina.core.hashing import stem_of
from lamina.core.values import Form
from lamina.dialects.memos import CheckMemo
from lamina.dialects.port import Request, Violation
from lamina.dialects.sending import (
    describe_mends,
    find_lost_question,
    find_mended_refs,
    find_violations,
    make_refusal,
)
from lamina.fitting.building import Built, Fit
from lamina.fitting.markers import Marked, place_markers
from lamina.fitting.output_limits import limit_output, note_lower_limit
from lamina.fitting.server_reports import ServerRequest, add_server_help


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A valid request, the headers that it needs, and its envelope with notes on what was mended."""

    request: dict[str, Any]
    envelope: Envelope
    headers: Mapping[str, str]
    plan: MarkerPlan | None


def write_request(built: Built, *, window: int, incoming: CheckMemo, outgoing: CheckMemo) -> Outgoing:
    """Write the request. The memos remember which messages were checked as they came, and as they were sent.

    Raises InvalidRequest if the provider would refuse it.
    """
    fit = built.fit
    envelope = built.envelope
    rendered = _render(fit, envelope)
    as_it_came = rendered is fit.original
    limited = rendered
    if not as_it_came:
        # The limit of a request that lamina does not change is the client's own affair.
        limited = limit_output(rendered, envelope, fit.target, window=window)
    if limited is not rendered:
        envelope = note_lower_limit(envelope, window)
    marked = _mark(fit, envelope, limited)

    # Markers are placed before the check, because the provider has rules for them, too.
    violations: Sequence[Violation] = ()
    if as_it_came:
        violations = find_violations(marked.request, fit.target, incoming)
    elif fit.original is not None:
        violations = find_violations(fit.original, fit.target, incoming)
    if as_it_came and violations:
        marked = _mark(fit, envelope, fit.target.wire.render(envelope))
        as_it_came = False
    if not as_it_came:
        _check(marked.request, fit, violations, outgoing)
    if violations:
        notes = (*envelope.notes, *describe_mends(violations))
        envelope = msgspec.structs.replace(envelope, notes=notes)

    helped = ServerRequest(request=marked.request)
    if envelope.ledger.cuts:
        helped = add_server_help(marked.request, fit.target, envelope.ledger, fit.policy.server)
    return Outgoing(request=helped.request, envelope=envelope, headers=helped.headers, plan=marked.plan)


def _render(fit: Fit, envelope: Envelope) -> Request:
    """Write the envelope in the target dialect. If nothing was changed, return the request as it came."""
    if fit.original is None or fit.head is not fit.parsed.head:
        return fit.target.wire.render(envelope)
    if not _is_unchanged(envelope):
        return fit.target.wire.render(envelope)
    return fit.original


def _is_unchanged(envelope: Envelope) -> bool:
    """Whether every entry is sent exactly as it came: not lowered, not repaired, not in another role."""
    full = Form.FULL
    # A plain loop: it runs for each request, and a call for each entry would cost more than what it reads.
    for entry in envelope.entries:
        segment = entry.segment
        if segment.is_own or entry.form is not full:
            return False
        if entry.parts is not segment.parts or entry.role is not segment.role:
            return False
    # What an earlier request sent in another wire form, rendering has to write that way again.
    rewritten = find_mended_refs(envelope.ledger)
    if not rewritten:
        return True
    refs = {entry.ref for entry in envelope.entries}
    return rewritten.isdisjoint(refs) and rewritten.isdisjoint(map(stem_of, refs))


def _mark(fit: Fit, envelope: Envelope, request: Request) -> Marked:
    """Place the cache markers that the caller asked for."""
    return place_markers(
        request,
        envelope,
        fit.target,
        breakpoints=fit.policy.breakpoints,
        counter=fit.counter,
        rules=fit.rules,
        before=fit.previous_ledger.mark,
        cut=envelope.cut,
    )


def _check(request: Request, fit: Fit, mended_violations: Sequence[Violation], outgoing: CheckMemo) -> None:
    """Raise InvalidRequest if a rendered request breaks a rule, or has lost the question of the caller's.

    `mended_violations` are the rules that the caller's request broke. The error names them, too.
    """
    # Without its last question a request would be a prefill: the model would go on with its own last answer.
    if mended_violations and fit.original is not None:
        lost_question = find_lost_question(fit.original, request)
        if lost_question is not None:
            raise make_refusal(fit.original, [lost_question], mended_violations=mended_violations)
    violations = find_violations(request, fit.target, outgoing)
    if violations:
        raise make_refusal(
            request, violations, caller_request=fit.original, mended_violations=mended_violations
        )
