"""What a provider reports, and what its server is asked to do, as they bear on the next request.

Reported usage calibrates an estimate; what the server cleared by itself is a line in the ledger and needs
no room here. Nothing is sent, and nothing of a message is changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from lamina.core.cut_target import limits
from lamina.core.tokens import Counter, calibrate
from lamina.core.values import Budget, Cut, Head, Ledger
from lamina.dialects.anthropic.server import BETAS, BINDING_BETA, with_drop_block
from lamina.dialects.port import Cleared, Dialect, Usage


class ServerHelp(msgspec.Struct, frozen=True, kw_only=True):
    """What the provider's server is asked to do. `drop_block`: to drop thinking that a cut has unbound."""

    drop_block: bool = False


def usage_of(given: Usage | int | None) -> Usage:
    return given if isinstance(given, Usage) else Usage(input=given or 0)


_ELSEWHERE = ("previous_response_id", "conversation", "cached_content", "cachedContent")
"""Fields by which a request goes on from what only the server has."""


def calibrated(
    ledger: Ledger, usage: Usage | int | None, counter: Counter, *, request: Mapping[str, Any] | None = None
) -> Ledger:
    """The ledger with what the provider reported for the last request, if that is news about this counter.

    What its server cleared was counted here and not there, so it is added to what was reported. Of a
    conversation that the server keeps, lamina counts only what is new, so its reports teach nothing.
    """
    reported = usage_of(usage)
    last = ledger.mark
    if reported.input <= 0 or counter.exact or last is None or not last.tokens:
        return ledger
    if last.counter != counter.identity:
        return ledger
    if request is not None and _continues_elsewhere(request):
        return ledger
    learnt = calibrate(
        ledger.calibration,
        counted=last.tokens,
        reported=reported.input + reported.cleared.tokens,
        counter=counter.identity,
    )
    return msgspec.structs.replace(ledger, calibration=learnt)


def _continues_elsewhere(request: Mapping[str, Any]) -> bool:
    """Whether the server has something that stands before this request, or in it."""
    holders = (request, request.get("config"))
    if any(_field(holder, name) for holder in holders for name in _ELSEWHERE):
        return True
    if isinstance(request.get("prompt"), Mapping):  # a template of the server's; elsewhere it is the text
        return True
    items = request.get("input")
    references = (_field(item, "type") == "item_reference" for item in items or ())
    return isinstance(items, list | tuple) and any(references)


def _field(holder: Any, name: str) -> Any:
    return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)


CLEARED = "the provider cleared "


def noted(ledger: Ledger, usage: Usage) -> Ledger:
    """The ledger with a line for what the server cleared, once for each change of it."""
    reason = f"{CLEARED}{usage.cleared}"
    last = next((cut.reason for cut in reversed(ledger.cuts) if cut.reason.startswith(CLEARED)), "")
    if usage.cleared == Cleared() or reason == last:
        return ledger
    cut = Cut(
        number=len(ledger.cuts) + 1,
        reason=reason,
        before=usage.input + usage.cleared.tokens,
        after=usage.input,
    )
    return msgspec.structs.replace(ledger, cuts=(*ledger.cuts, cut))


def roomier(budget: Budget, head: Head, cleared: int) -> Budget:
    """The budget of a request from which the server clears as much by itself: a cut waits that much longer.

    Only the waiting is longer. A cut lowers first what the server would clear, so where one is due, its
    target is that of a server which clears nothing.
    """
    if cleared <= 0:
        return budget
    tight = limits(budget, head, ())
    room = tight.room + cleared
    most = None if budget.input is None else budget.input + cleared
    return msgspec.structs.replace(
        budget,
        window=budget.window + cleared,
        reserve=budget.window - tight.room,
        input=most,
        trigger=(tight.trigger + cleared) / room,
        target=tight.target / room,
        least=tight.least / room,
        largest=tight.largest / room,
    )


def helped(
    request: Mapping[str, Any], dialect: Dialect, server: ServerHelp | None
) -> tuple[Mapping[str, Any], dict[str, str]]:
    """The request with what the server is asked for, and the headers that this needs."""
    if server is None or not server.drop_block or dialect.binding(request) != "strict":
        return request, {}
    asked = with_drop_block(request)
    return asked, {} if asked is request else {BETAS: BINDING_BETA}
