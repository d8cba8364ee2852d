"""In front of any SDK call: a provider's request goes in, one that fits comes out.

    parse ──▶ build ──▶ render, or the request as it came ──▶ mark, if cache markers are asked for ──▶ check

It comes out in the dialect it came in, or `to` another. Stateless: the caller keeps the ledger between
calls, and the request itself is the store from which everything that was lowered can be recalled. If nothing
has to change, the same object comes back. What the API would refuse is mended, or raises InvalidRequest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from lamina.caches import CacheRules, rates, rules_for
from lamina.caches.marker_plan import MarkerPlan
from lamina.core.arrange import Layout
from lamina.core.build import build
from lamina.core.envelope import Envelope
from lamina.core.hashing import stem
from lamina.core.memo import Memo
from lamina.core.recall import recall
from lamina.core.tokens import Counter
from lamina.core.values import Budget, Entry, Form, Head, Ledger, Segment
from lamina.core.wording import text_of
from lamina.dialects import DIALECTS, recognise
from lamina.dialects.anthropic.server import asks_to_clear
from lamina.dialects.port import (
    CheckMemo,
    Dialect,
    OwnHead,
    ParsedRequest,
    ParseMemo,
    Request,
    Usage,
    Violation,
)
from lamina.dialects.sending import broken_rules, mended, refused, settled, written_anew
from lamina.dialects.snapshots import intact
from lamina.dialects.translate import options_for, translated
from lamina.errors import BadInput
from lamina.fitting.markers import Breakpoints, Lifetimes, Marked, known_breakpoints, marked
from lamina.fitting.server_reports import ServerHelp, calibrated, helped, noted, roomier, usage_of
from lamina.models.counters import counter_for
from lamina.models.facts import model as facts_of

__all__ = ["Breakpoints", "Fitted", "Lifetimes", "RequestMemo", "ServerHelp", "fit_request", "named"]

AS_LOGGED = Layout(context="logged")
"""A parsed request is laid out already: nothing of it changes places."""


class RequestMemo:
    """Makes the next fit of a growing request cheaper and never changes it. One for each conversation."""

    def __init__(self) -> None:
        self.parse = ParseMemo()
        self.build = Memo()
        self.asked = CheckMemo()
        self.sent = CheckMemo()


class Fitted(msgspec.Struct, frozen=True, kw_only=True):
    """A request that fits, the ledger for the next call, and the account of what was done.

    `headers` must be sent with it, and `plan` says why each cache marker stands where it does. `left` names
    the parameters and tools that the dialect it went to has no words for.
    """

    request: dict[str, Any]
    ledger: Ledger
    envelope: Envelope
    log: tuple[Segment, ...]
    headers: Mapping[str, str] = {}
    plan: MarkerPlan | None = None
    left: tuple[str, ...] = ()

    def recall(self, key: str) -> str:
        """The full text of what a handle, or the key of a digest, stands for."""
        return "\n".join(text_of(s.parts) for s in recall(self.log, key, ledger=self.ledger))


def fit_request(
    request: Mapping[str, Any],
    *,
    dialect: str | Dialect | None = None,
    to: str | Dialect | None = None,
    model: str = "",
    budget: Budget | None = None,
    ledger: Ledger | Mapping[str, Any] | None = None,
    counter: Counter | None = None,
    usage: Usage | int | None = None,
    idle: float | None = None,
    memo: RequestMemo | None = None,
    breakpoints: Breakpoints = "keep",
    rules: CacheRules | None = None,
    server: ServerHelp | None = None,
) -> Fitted:
    """The request, valid and within the window of its model, continuing the last one byte for byte.

    `dialect` is recognised from the request's shape, `budget` taken from the model's window, `counter`
    from its tokenizer, `rules` from its cache. `to` is the dialect to answer in and `model` the one to
    ask, where they are others than the request's. `ledger` is what the last call returned; `usage` what the
    provider reported for it; `idle` the seconds since. `breakpoints` says what becomes of cache markers,
    `server` what is left to the provider's server.
    """
    known_breakpoints(breakpoints)
    memo = memo or RequestMemo()
    speaks = _spoken(request, dialect)
    goes = speaks if to is None else named(to)
    asked, headers = helped(request, goes, server) if goes is speaks else (request, {})
    parsed = _parsed(asked, speaks, memo)
    own = _head(parsed.head, speaks, goes, model)
    name = str(own.head.parameters.get("model", ""))
    counter = counter or counter_for(name)
    given, told = _ledger(ledger), usage_of(usage)
    cache = rules or rules_for(name, dialect=goes.name)
    room = _budget(budget or facts_of(name).budget, own.head, goes)
    if asks_to_clear(asked):
        room = roomier(room, own.head, told.cleared.tokens)
    before = noted(calibrated(given, told, counter, request=asked), told)
    envelope = build(
        parsed.log,
        head=own.head,
        budget=room,
        ledger=before,
        counter=counter,
        idle=idle or 0,
        memo=memo.build,
        options=options_for(goes, own.head, layout=AS_LOGGED, rates=rates(cache, name)),
    )
    envelope = settled(envelope, goes, before=given.mark, memo=memo.build)

    def marked_for_cache(request: Mapping[str, Any]) -> Marked:
        return marked(
            request, envelope, goes, breakpoints=breakpoints, counter=counter, rules=cache, before=given.mark
        )

    given_so = asked if goes is speaks else None
    rewritten = written_anew(envelope.ledger)
    unchanged = own.head is parsed.head and all(_untouched(e, rewritten) for e in envelope.entries)
    sent = _outgoing(given_so, envelope, goes, memo, unchanged=unchanged, finish=marked_for_cache)
    if sent.notes:
        envelope = msgspec.structs.replace(envelope, notes=envelope.notes + sent.notes)
    return Fitted(
        request=sent.request,
        ledger=envelope.ledger,
        envelope=envelope,
        log=parsed.log,
        headers=headers,
        plan=sent.plan,
        left=own.left,
    )


class _Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is valid, with the plan of its markers and what was mended of it."""

    request: dict[str, Any]
    plan: MarkerPlan | None = None
    notes: tuple[str, ...] = ()


def _outgoing(
    asked: Request | None,
    envelope: Envelope,
    dialect: Dialect,
    memo: RequestMemo,
    *,
    unchanged: bool,
    finish: Callable[[Mapping[str, Any]], Marked],
) -> _Outgoing:
    """The request as it came, where that is valid and nothing of it changed; else rendered, with every mend.

    `asked` is the request in the dialect that it goes to, if it came in that one. Raises InvalidRequest where
    rendering does not make it valid.
    """
    broken: list[Violation] = []
    if asked is not None:
        done = finish(asked) if unchanged else Marked(request=asked)  # type: ignore[arg-type]
        broken = broken_rules(done.request, dialect, memo.asked)
        if unchanged and not broken:
            return _Outgoing(request=done.request, plan=done.plan)
    done = finish(dialect.render(envelope))
    still = broken_rules(done.request, dialect, memo.sent)
    if still:
        raise refused(done.request, still, asked=asked, mended=broken)
    return _Outgoing(request=done.request, plan=done.plan, notes=mended(broken))


def _parsed(asked: Request, speaks: Dialect, memo: RequestMemo) -> ParsedRequest:
    """The request as a log. If the caller changed a message in place, what is known to be clean is not."""
    before = memo.parse.known
    parsed = speaks.parse(asked, memo=memo.parse)
    if not intact(before, memo.parse.known):
        memo.asked.forget()
        memo.sent.forget()
    return parsed


def named(dialect: str | Dialect) -> Dialect:
    if isinstance(dialect, Dialect):
        return dialect
    if dialect not in DIALECTS:
        raise BadInput(
            f"unknown dialect {dialect!r}", place="dialect", hint=f"use one of {', '.join(DIALECTS)}"
        )
    return DIALECTS[dialect]


def _spoken(request: Any, dialect: str | Dialect | None) -> Dialect:
    if not isinstance(request, Mapping):
        found = type(request).__name__
        raise BadInput(f"{found} is not a request", place="request", hint="pass the arguments as a dict")
    return named(dialect) if dialect is not None else recognise(request)


def _head(head: Head, speaks: Dialect, goes: Dialect, model: str) -> OwnHead:
    """The head to send: the very one that came, if nothing about it is asked to be another."""
    if goes is not speaks:
        return translated(head, speaks, goes, model=model)
    if model and model != head.parameters.get("model"):
        return OwnHead(head=Head(tools=head.tools, parameters={**head.parameters, "model": model}))
    return OwnHead(head=head)


def _budget(budget: Budget, head: Head, dialect: Dialect) -> Budget:
    """The budget, with what the answer may take where the dialect says that in a place of its own."""
    if budget.reserve is not None or any(name.startswith("max_") for name in head.parameters):
        return budget
    output = dialect.plain_head(head).output
    return msgspec.structs.replace(budget, reserve=min(output, budget.window // 2)) if output else budget


def _ledger(given: Ledger | Mapping[str, Any] | None) -> Ledger:
    if given is None:
        return Ledger()
    return given if isinstance(given, Ledger) else Ledger.load(given)


def _untouched(entry: Entry, rewritten: frozenset[str]) -> bool:
    """Whether it is sent as it came: not lowered, repaired, said in another voice, or `rewritten` before."""
    segment = entry.segment
    whole = entry.form is Form.FULL and entry.parts is segment.parts and entry.role is segment.role
    if not whole or segment.origin == "lamina":
        return False
    return not rewritten or (entry.ref not in rewritten and stem(entry.ref) not in rewritten)
