"""Requests on their way, and the conversations that they belong to: what keeps a ledger from call to call.

Whoever sends a request makes a `Call` of it, sends `call.request`, and says what came of it: `done` when
it was answered, `deepened` when it was refused as too long, which gives a smaller one to send instead.
Nothing is sent here, and a call that failed leaves no trace. Safe to use from several threads.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from itertools import count
from threading import Lock
from typing import Any, NamedTuple

import msgspec

from lamina.core.ledger import rewind
from lamina.core.recall import refs
from lamina.core.tokens import Counter
from lamina.core.values import Budget, Ledger, Ref, Role
from lamina.dialects.overflow import Overflow
from lamina.dialects.port import Dialect, Usage
from lamina.errors import BudgetExceeded
from lamina.models import model
from lamina.request import Breakpoints, Fitted, RequestMemo, ServerHelp, fit_request

CONVERSATIONS = 256
"""How many conversations are remembered; the one not used for longest is forgotten first."""

DEEPER = 0.75
"""Of a request that was refused without a word about the limit, what the next one may have."""


class Call:
    """One request: as it is sent first, as it is sent again, and what is kept of it."""

    def __init__(self, conversations: Conversations, dialect: Dialect, request: Mapping[str, Any]) -> None:
        self._among, self._dialect = conversations, dialect
        self._asked = {name: list(v) if isinstance(v, Iterator) else v for name, v in request.items()}
        self._model = str(request.get("model", ""))
        with conversations.lock:
            self._key, self._known = conversations.find(self._asked, dialect)
            self._before = conversations.kept.get(self._key)
            self._windows = self._known.windows
            self._fitted = self._fit(self._budget())

    @property
    def request(self) -> dict[str, Any]:
        """What to send."""
        return self._fitted.request

    @property
    def headers(self) -> Mapping[str, str]:
        """What must be sent with it, in headers."""
        return self._fitted.headers

    def deepened(self, found: Overflow) -> bool:
        """Makes the request smaller, as much as the API asked for or as can be; False if it cannot be."""
        counted = self._fitted.envelope.tokens
        window = found.window(counted, otherwise=DEEPER)
        with self._among.lock:
            try:
                self._windows = {**self._known.windows, self._model: window}
                self._fitted = self._fit(self._budget())
            except BudgetExceeded as full:
                if full.floor >= counted:
                    return False
                self._windows = self._known.windows  # too small to be kept to
                self._fitted = self._fit(_limited(self._budget(), full.floor, reserve=0))
        return True

    def done(self, *, usage: Usage | int = 0) -> None:
        """It was answered; `usage` is what the API counted for it, if it said so."""
        known = msgspec.structs.replace(
            self._known, ledger=self._fitted.ledger, fitted=self._fitted, windows=self._windows,
            usage=self._counted(usage),
        )  # fmt: skip
        with self._among.lock:
            self._key = self._among.keep(self._key, known, before=self._before)

    def counted(self, usage: Usage | int) -> None:
        """What the API counted, where it says so only at the end of an answer."""
        with self._among.lock:
            known = self._among.kept.get(self._key)
            if known is not None and known.fitted is self._fitted:  # else a later call is what counts
                self._among.kept[self._key] = msgspec.structs.replace(known, usage=self._counted(usage))

    def _counted(self, usage: Usage | int) -> Usage | int:
        """The usage; of an answer that does not say, only what the server cleared last."""
        before = self._known.usage
        if usage in (0, Usage()) and isinstance(before, Usage):
            return Usage(cleared=before.cleared)
        return usage

    def _fit(self, budget: Budget) -> Fitted:
        known = self._known
        return fit_request(
            self._asked, dialect=self._dialect, budget=budget, ledger=known.ledger, usage=known.usage,
            counter=self._among.counter, memo=known.memo, breakpoints=self._among.breakpoints,
            server=self._among.server,
        )  # fmt: skip

    def _budget(self) -> Budget:
        budget = self._among.budget or model(self._model).budget
        learnt = self._windows.get(self._model, budget.window)
        return budget if learnt >= budget.window else _limited(budget, learnt)


def _limited(budget: Budget, window: int, *, reserve: int | None = None) -> Budget:
    if reserve is None and budget.reserve is not None:
        reserve = min(budget.reserve, window // 2)
    return msgspec.structs.replace(budget, window=max(window, 1), reserve=reserve)


class Conversation(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What is kept between two calls.

    `told` and `system` are what the last request said, `usage` what the API counted for it, and `windows`
    what each model turned out to have.
    """

    ledger: Ledger = Ledger()
    memo: Any = msgspec.field(default_factory=RequestMemo)
    told: tuple[Ref, ...] = ()
    system: tuple[Ref, ...] = ()
    usage: Usage | int = 0
    windows: dict[str, int] = {}
    fitted: Any = None


class Conversations:
    """Conversations, by name where they have one, else told apart by what was said in them."""

    def __init__(
        self, budget: Budget | None = None, counter: Counter | None = None, *,
        breakpoints: Breakpoints = "keep", server: ServerHelp | None = None,
    ) -> None:  # fmt: skip
        self.budget, self.counter, self.name = budget, counter, ""
        self.breakpoints, self.server = breakpoints, server
        self.kept: OrderedDict[str | int, Conversation] = OrderedDict()
        self.numbers, self.lock = count(), Lock()

    def named(self, name: str, *, ledger: Ledger | None = None) -> Conversations:
        """The same ones, for calls that all belong to the one of this name."""
        other = Conversations()
        vars(other).update(vars(self), name=name)
        if ledger is not None:
            self.kept[name] = Conversation(ledger=ledger)
        return other

    def last(self) -> Fitted | None:
        """What was answered last."""
        known = self.kept.get(self.name) if self.name else next(reversed(self.kept.values()), None)
        return known.fitted if known else None

    def find(self, request: Mapping[str, Any], dialect: Dialect) -> tuple[str | int, Conversation]:
        """The conversation that a request continues; a fork of one that it shares answers with; a new one."""
        if self.name:
            return self.name, self.kept.get(self.name) or Conversation()
        log = list(refs(dialect.parse(request).log))
        said = [(ref, segment.role) for ref, segment in log if segment.role is not Role.SYSTEM]
        system = tuple(ref for ref, segment in log if segment.role is Role.SYSTEM)
        new = Conversation(told=tuple(ref for ref, _ in said), system=system)
        close = max((_closeness(new, known, key) for key, known in self.kept.items()), default=_FAR)
        if not close.continues and all(role is not Role.ASSISTANT for _, role in said[: close.shared]):
            return next(self.numbers), new
        known = self.kept[close.key]
        if close.continues and close.same_system:
            return close.key, msgspec.structs.replace(known, told=new.told)
        ledger = rewind(known.ledger, (*system, *new.told[: close.shared]))
        fork = msgspec.structs.replace(new, ledger=ledger, memo=known.memo, windows=known.windows)
        return next(self.numbers), fork

    def keep(self, key: str | int, known: Conversation, *, before: Conversation | None) -> str | int:
        """Remembers a conversation; where another call took it further meanwhile, both if that can be.

        Returns the key that it is remembered by.
        """
        now = self.kept.get(key)
        if now is not None and now is not before:
            if isinstance(key, int):
                key = next(self.numbers)
            elif len(now.ledger.cuts) > len(known.ledger.cuts):
                return key
        self.kept[key] = known
        self.kept.move_to_end(key)
        while len(self.kept) > CONVERSATIONS:
            self.kept.popitem(last=False)
        return key


class _Close(NamedTuple):
    """How near a known conversation is to a request: the nearest is the greatest, of equals the newest."""

    shared: int = 0
    continues: bool = False
    same_system: bool = False
    key: int = -1


_FAR = _Close()


def _closeness(new: Conversation, known: Conversation, key: str | int) -> _Close:
    if isinstance(key, str):
        return _FAR
    pairs = enumerate(zip(new.told, known.told, strict=False))
    shared = next((i for i, (a, b) in pairs if a != b), min(len(new.told), len(known.told)))
    return _Close(shared, shared == len(known.told), new.system == known.system, key)
