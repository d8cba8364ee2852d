"""What a provider's server reported for the last request, and what the next one asks of it.

Reported usage calibrates lamina's estimates. If the client has its server clear old content, that becomes a
line in the ledger, and needs no room in the next request. lamina itself asks for one thing: that the server
drops thinking which a cut has unbound. Nothing is sent here, and no message is changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from lamina.core.cut_target import derive_limits
from lamina.core.text.characters import lower_ascii
from lamina.core.tokens import Counter, calibrate
from lamina.core.values import Budget, Cut, Ledger, Preference, RequestHead
from lamina.dialects.anthropic.server import BETAS, merge_betas
from lamina.dialects.json_values import list_or_empty, read_field
from lamina.dialects.port import Dialect
from lamina.dialects.translate import choose_binding
from lamina.dialects.usage import Cleared, Usage


class ServerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request with the fields that ask the server for help, and the headers that they need."""

    request: dict[str, Any]
    headers: dict[str, str] = {}


def add_server_help(
    request: dict[str, Any], dialect: Dialect, ledger: Ledger, *, drop_block: bool = True
) -> ServerRequest:
    """Ask the provider's server to drop unbound thinking, from the first cut of a conversation on.

    `ledger` is the one of this request. Without `drop_block` nothing is asked: the server has refused it.
    """
    unhelped = ServerRequest(request=request)
    server = dialect.server
    if server is None:
        return unhelped
    if all(cut.reason.startswith(CLEARED) for cut in ledger.cuts):
        return unhelped  # what the server clears by itself changes no bytes that were sent
    if server.binding(request) != "strict":
        return unhelped
    if choose_binding(dialect, request, drop_block=drop_block) != "drop":
        return unhelped
    # The server does not remember the switch, and the thinking that it has dropped is sent again until the
    # next cut. So every later request asks for it, too.
    helped_request = dict(server.ask_to_drop_thinking(request))
    return ServerRequest(request=helped_request, headers=dict(server.dropping_headers))


def with_headers(request: dict[str, Any], headers: Mapping[str, str], *, beta: bool) -> dict[str, Any]:
    """An SDK's arguments with lamina's betas added to the caller's own.

    The endpoints under `client.beta` make the header of their argument `betas`. If the caller set the header
    itself, or the endpoint has no such argument, the betas are added to the header.
    """
    if not headers:
        return request
    extra_headers = dict(request.get("extra_headers") or {})
    header_name = _find_betas_header(extra_headers)
    if beta and not header_name:
        own_betas = map(str, list_or_empty(request.get("betas")))
        return {**request, "betas": merge_betas(*own_betas, headers[BETAS]).split(",")}
    own_header = str(extra_headers.get(header_name, ""))
    extra_headers[header_name or BETAS] = merge_betas(own_header, headers[BETAS])
    return {**request, "extra_headers": extra_headers}


def _find_betas_header(headers: Mapping[str, str]) -> str:
    """The name of the betas header as the caller spelled it, or ""."""
    for name in headers:
        if lower_ascii(name) == BETAS:
            return name
    return ""


def usage_of(usage: Usage | int | None) -> Usage:
    """The usage as a `Usage`. A number is the count of input tokens, and None is no report."""
    if isinstance(usage, Usage):
        return usage
    return Usage(input=usage or 0)


def calibrate_ledger(
    ledger: Ledger, usage: Usage | int | None, counter: Counter, *, request: Mapping[str, Any] | None = None
) -> Ledger:
    """The ledger with a new calibration, if the report says something new about this counter.

    If the server holds a part of the conversation, lamina counts only the rest: the report teaches nothing.
    """
    reported = usage_of(usage)
    last = ledger.mark
    if reported.input <= 0 or counter.exact:
        return ledger  # an exact counter has nothing to learn
    if last is None or not last.tokens:
        return ledger
    if last.counter != counter.identity:
        return ledger  # the last request was counted by another counter
    if request is not None and _continues_on_server(request):
        return ledger
    # lamina counted what the server cleared, and the provider did not.
    calibration = calibrate(
        ledger.calibration,
        counted=last.tokens,
        reported=reported.input + reported.cleared.tokens,
        counter=counter.identity,
    )
    return msgspec.structs.replace(ledger, calibration=calibration)


_SERVER_STATE_FIELDS = ("previous_response_id", "conversation", "cached_content", "cachedContent")
"""Fields by which a request continues content that only the server has."""


def _continues_on_server(request: Mapping[str, Any]) -> bool:
    """Whether the server adds content of its own before this request or inside it.

    It does if the request names a response, a conversation, a cached content, a template or an item that
    only the server has.
    """
    config = request.get("config")
    for name in _SERVER_STATE_FIELDS:
        if read_field(request, name) or read_field(config, name):
            return True
    # In the Responses API `prompt` names a template on the server; in other APIs it is the text itself.
    if isinstance(request.get("prompt"), Mapping):
        return True
    items = list_or_empty(request.get("input"))
    return any(read_field(item, "type") == "item_reference" for item in items)


CLEARED = "the provider cleared "
"""Begins the reason of a cut that the server reported."""


def record_clearing(ledger: Ledger, usage: Usage) -> Ledger:
    """The ledger with a cut for what the server cleared.

    Providers report the same clearing again with every answer, so a cut is added only when it changes.
    """
    if usage.cleared == Cleared():
        return ledger
    reason = f"{CLEARED}{usage.cleared}"
    if reason == _last_clearing(ledger):
        return ledger
    cut = Cut(
        number=len(ledger.cuts) + 1,
        reason=reason,
        before=usage.input + usage.cleared.tokens,
        after=usage.input,
    )
    return msgspec.structs.replace(ledger, cuts=(*ledger.cuts, cut))


def _last_clearing(ledger: Ledger) -> str:
    """The reason of the last cut that the server made, "" if it made none."""
    for cut in reversed(ledger.cuts):
        if cut.reason.startswith(CLEARED):
            return cut.reason
    return ""


UNBOUND = "the provider refused thinking that belongs to another past"
"""The reason of a cut that changes nothing but what the server is asked for."""


def record_unbound(ledger: Ledger) -> Ledger:
    """The ledger after the server refused thinking: from now on it is asked to drop what does not fit.

    The past may have been another one because the ledger of it is lost, or because the client changed it.
    """
    cut = Cut(number=len(ledger.cuts) + 1, reason=UNBOUND)
    return msgspec.structs.replace(ledger, cuts=(*ledger.cuts, cut))


def extend_budget(budget: Budget, head: RequestHead, cleared: int, prefer: Preference) -> Budget:
    """A budget whose next cut waits until `cleared` more tokens are in the request.

    The server clears that many tokens by itself. Only the trigger moves: a cut lowers first what the server
    would clear, so the target of a cut stays that of a server which clears nothing.
    """
    if cleared <= 0:
        return budget
    usual = derive_limits(budget, head, (), prefer=prefer)
    # trigger and target are shares of the working room, which without one is the whole room
    extended_room = usual.working + cleared
    extended_working = budget.working
    if extended_working is not None:
        extended_working += cleared
    extended_input = budget.input
    if extended_input is not None:
        extended_input += cleared
    return msgspec.structs.replace(
        budget,
        window=budget.window + cleared,
        reserve=budget.window - usual.room,
        input=extended_input,
        working=extended_working,
        trigger=(usual.trigger + cleared) / extended_room,
        target=usual.target / extended_room,
    )
