"""In front of any SDK call: a provider's request goes in, one that fits comes out, in the same dialect.

Stateless: the caller keeps the ledger between calls, and the request itself is the store from which
everything that was lowered can be recalled. Nothing to do means the same object comes back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from lamina.core.arrange import Layout
from lamina.core.bench import Options
from lamina.core.build import build
from lamina.core.envelope import Envelope
from lamina.core.memo import Memo
from lamina.core.recall import recall
from lamina.core.tokens import Counter, calibrate
from lamina.core.values import Budget, Entry, Form, Layer, Ledger, Role, Segment
from lamina.core.wording import text_of
from lamina.counters import counter_for
from lamina.dialects import DIALECTS, recognise
from lamina.dialects.port import Dialect, ParseMemo, Usage
from lamina.errors import BadInput
from lamina.models import model

Breakpoints = Literal["keep"]

AS_LOGGED = Layout(context="logged")
"""A parsed request is laid out already: nothing of it changes places."""


class RequestMemo:
    """Makes the next fit of a growing request cheaper and never changes it. One for each conversation."""

    def __init__(self) -> None:
        self.parse = ParseMemo()
        self.build = Memo()


class Fitted(msgspec.Struct, frozen=True, kw_only=True):
    """A request that fits, the ledger for the next call, and the account of what was done."""

    request: dict[str, Any]
    ledger: Ledger
    envelope: Envelope
    log: tuple[Segment, ...]

    def recall(self, key: str) -> str:
        """The full text of what a handle, or the key of a digest, stands for."""
        return "\n".join(text_of(s.parts) for s in recall(self.log, key, ledger=self.ledger))


def fit_request(
    request: Mapping[str, Any], *, dialect: str | Dialect | None = None, budget: Budget | None = None,
    ledger: Ledger | Mapping[str, Any] | None = None, counter: Counter | None = None,
    usage: Usage | int | None = None, idle: float | None = None,
    memo: RequestMemo | None = None, breakpoints: Breakpoints = "keep",
) -> Fitted:  # fmt: skip
    """The request, valid and within the window of its model, continuing the last one byte for byte.

    `dialect` is recognised from the request's shape, `budget` taken from the model's window, `counter`
    from its tokenizer. `ledger` is what the last call returned; `usage` what the provider reported for
    it; `idle` the seconds since. The client's cache markers stay where they are.
    """
    if breakpoints != "keep":
        raise BadInput(
            f"breakpoints is {breakpoints!r}", place="fit_request", hint='only "keep" is known yet'
        )
    if not isinstance(request, Mapping):
        found = type(request).__name__
        raise BadInput(f"{found} is not a request", place="request", hint="pass the arguments as a dict")
    speaks = named(dialect) if dialect is not None else recognise(request)
    memo = memo or RequestMemo()
    parsed = speaks.parse(request, memo=memo.parse)
    name = str(request.get("model", ""))
    counter = counter or counter_for(name)
    known = calibrated(_ledger(ledger), usage, counter)
    options = Options(repairs=speaks.repairs, binding=speaks.binding(request), layout=AS_LOGGED)
    envelope = build(
        parsed.log, head=parsed.head, budget=budget or Budget(window=model(name).window), ledger=known,
        counter=counter, idle=idle or 0, options=options, memo=memo.build,
    )  # fmt: skip
    fitted = request if _as_it_came(envelope, speaks) else speaks.render(envelope)
    return Fitted(request=fitted, ledger=envelope.ledger, envelope=envelope, log=parsed.log)  # type: ignore[arg-type]


def named(dialect: str | Dialect) -> Dialect:
    if isinstance(dialect, Dialect):
        return dialect
    if dialect not in DIALECTS:
        raise BadInput(
            f"unknown dialect {dialect!r}", place="dialect", hint=f"use one of {', '.join(DIALECTS)}"
        )
    return DIALECTS[dialect]


def calibrated(ledger: Ledger, usage: Usage | int | None, counter: Counter) -> Ledger:
    """The ledger with what the provider reported for the last request, if that is news."""
    reported = usage.input if isinstance(usage, Usage) else usage or 0
    if reported <= 0 or counter.exact or ledger.mark is None or not ledger.mark.tokens:
        return ledger
    known = calibrate(ledger.calibration, counted=ledger.mark.tokens, reported=reported)
    return msgspec.structs.replace(ledger, calibration=known)


def _ledger(given: Ledger | Mapping[str, Any] | None) -> Ledger:
    if given is None:
        return Ledger()
    return given if isinstance(given, Ledger) else Ledger.load(given)


def _as_it_came(envelope: Envelope, dialect: Dialect) -> bool:
    """Whether rendering would give back the request: nothing lowered, repaired, or mended on the way in."""
    begins = next((entry.role for entry in envelope.entries if entry.layer is not Layer.SYSTEM), Role.USER)
    if dialect.user_first and begins is Role.ASSISTANT:
        return False
    return all(_untouched(entry) for entry in envelope.entries)


def _untouched(entry: Entry) -> bool:
    segment = entry.segment
    whole = entry.form is Form.FULL and entry.parts is segment.parts and segment.origin != "lamina"
    return whole and segment.meta.get("wire", {}).get("count") != 0  # 0: parsing had to mend the message
