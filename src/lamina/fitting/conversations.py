"""Requests on their way, and the conversations that they belong to: what keeps a ledger from call to call.

Whoever sends a request makes a `PendingCall` of it, sends `call.request`, and says what came of it: `done`
when it was answered, `deepened` when it was refused as too long, which gives a smaller one to send instead.
Nothing is sent here, and a call that failed leaves no trace. Safe to use from several threads.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from copy import copy
from hashlib import blake2b
from itertools import count
from operator import is_
from threading import Lock
from typing import Any, NamedTuple
from weakref import ReferenceType, ref

import msgspec

from lamina.core.hashing import content_digest, parts_digest
from lamina.core.ledger import rewind
from lamina.core.recall import refs
from lamina.core.tokens import Counter
from lamina.core.values import Budget, Digest, Ledger, Role, Segment
from lamina.dialects.overflow import Overflow
from lamina.dialects.port import Dialect, Usage
from lamina.errors import BadInput, BudgetExceeded
from lamina.fitting.request import Breakpoints, Fitted, RequestMemo, ServerHelp, fit_request
from lamina.models.facts import model

CONVERSATIONS = 256
"""How many conversations are remembered; the one not used for longest is forgotten first."""

DEEPER = 0.75
"""Of a request that was refused without a word about the limit, what the next one may have."""


class PendingCall:
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

    @property
    def fitted(self) -> Fitted:
        """The request as it is sent, with its ledger, its account and what was lowered."""
        return self._fitted

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
            self._known,
            ledger=self._fitted.ledger,
            fitted=self._fitted,
            windows=self._windows,
            usage=self._counted(usage),
        )
        with self._among.lock:
            self._key = self._among.keep(self._key, known, before=self._before)

    def counted(self, usage: Usage | int) -> None:
        """What the API counted, where it says so only at the end of an answer."""
        with self._among.lock:
            known = self._among.kept.get(self._key)
            if known is not None and known.fitted is self._fitted:  # else a later call is what counts
                self._among.kept[self._key] = msgspec.structs.replace(known, usage=self._counted(usage))

    def remembered(self, answer: Any) -> Any:
        """The answer, which from now on is known to be that of this call."""
        self._among.answers.remember(answer, self)
        return answer

    def _counted(self, usage: Usage | int) -> Usage | int:
        """The usage; of an answer that does not say, only what the server cleared last."""
        before = self._known.usage
        if usage in (0, Usage()) and isinstance(before, Usage):
            return Usage(cleared=before.cleared)
        return usage

    def _fit(self, budget: Budget) -> Fitted:
        known = self._known
        return fit_request(
            self._asked,
            dialect=self._dialect,
            budget=budget,
            ledger=known.ledger,
            usage=known.usage,
            counter=self._among.counter,
            memo=known.memo,
            breakpoints=self._among.breakpoints,
            server=self._among.server,
        )

    def _budget(self) -> Budget:
        budget = self._among.budget or model(self._model).budget
        learnt = self._windows.get(self._model, budget.window)
        return budget if learnt >= budget.window else _limited(budget, learnt)


def _limited(budget: Budget, window: int, *, reserve: int | None = None) -> Budget:
    if reserve is None and budget.reserve is not None:
        reserve = min(budget.reserve, window // 2)
    return msgspec.structs.replace(budget, window=max(window, 1), reserve=reserve)


class Answers:
    """Which call each answer belongs to, as long as somebody holds the answer."""

    def __init__(self) -> None:
        self._calls: dict[int, tuple[ReferenceType[Any], PendingCall]] = {}

    def remember(self, answer: Any, call: PendingCall) -> None:
        """Notes the call of an answer; an object that nothing can point at weakly is not remembered."""
        key = id(answer)
        try:
            pointer = ref(answer, lambda _: self._calls.pop(key, None))
        except TypeError:
            return
        self._calls[key] = (pointer, call)

    def call_of(self, answer: Any) -> PendingCall | None:
        pointer, call = self._calls.get(id(answer), (None, None))
        return call if pointer is not None and pointer() is answer else None


class RequestDigests(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What a request says, as digests: enough to tell whether another one goes on from it.

    `system` is the system text that stands before anybody speaks. `rest` are the segments after it, `told`
    the digest of each, and `chain` the hash of all of them up to and with each. `spoken` is the place of
    the first answer in `told`.
    """

    system: tuple[Digest, ...] = ()
    rest: tuple[Segment, ...] = ()
    told: tuple[Digest, ...] = ()
    chain: tuple[bytes, ...] = ()
    spoken: int = 0


NOTHING = RequestDigests()


def _said(log: tuple[Segment, ...], before: RequestDigests) -> RequestDigests:
    """What a log says. Segments that `before` begins with, the same objects, are not hashed again."""
    lead = next((i for i, segment in enumerate(log) if segment.role is not Role.SYSTEM), len(log))
    rest = log[lead:]
    same = _same_objects(rest, before.rest)
    new = [_digest(segment) for segment in rest[same:]]
    chain = list(before.chain[:same])
    for digest in new:
        last = chain[-1] if chain else b""
        chain.append(blake2b(last + digest.encode(), digest_size=16).digest())
    return RequestDigests(
        system=tuple(map(_digest, log[:lead])),
        rest=rest,
        told=(*before.told[:same], *new),
        chain=tuple(chain),
        spoken=before.spoken if before.spoken < same else _first_answer(rest),
    )


def _same_objects(one: tuple[Segment, ...], other: tuple[Segment, ...]) -> int:
    """How many segments two logs begin with that are the very same objects."""
    same = list(map(is_, one, other))
    return same.index(False) if False in same else len(same)


def _first_answer(log: tuple[Segment, ...]) -> int:
    return next((i for i, segment in enumerate(log) if segment.role is Role.ASSISTANT), len(log))


def _digest(segment: Segment) -> Digest:
    return content_digest(segment, parts_digest(segment.role, segment.parts))


class Conversation(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What is kept between two calls.

    `said` is what the last request said, in `dialect` and as these `turns` of it; `usage` what the API
    counted for it; `windows` what each model turned out to have.
    """

    ledger: Ledger = Ledger()
    memo: Any = msgspec.field(default_factory=RequestMemo)
    dialect: str = ""
    turns: tuple[Any, ...] = ()
    said: RequestDigests = NOTHING
    usage: Usage | int = 0
    windows: dict[str, int] = {}
    fitted: Any = None

    @property
    def told(self) -> tuple[Digest, ...]:
        return self.said.told


class Conversations:
    """Conversations, by name where they have one, else told apart by what was said in them."""

    def __init__(
        self,
        budget: Budget | None = None,
        counter: Counter | None = None,
        *,
        breakpoints: Breakpoints = "keep",
        server: ServerHelp | None = None,
    ) -> None:
        self.budget, self.counter, self.name = budget, counter, ""
        self.breakpoints, self.server = breakpoints, server
        self.kept: OrderedDict[str | int, Conversation] = OrderedDict()
        self.numbers, self.lock = count(), Lock()
        self.unnamed: set[int] = set()
        self.answers = Answers()

    def named(self, name: str, *, ledger: Ledger | None = None) -> Conversations:
        """The same ones, for calls that all belong to the one of this name."""
        other = Conversations()
        vars(other).update(vars(self), name=name)
        if ledger is not None:
            self.kept[name] = Conversation(ledger=ledger)
        return other

    def last(self) -> Fitted | None:
        """What was answered last in the conversation of this name, or in the only one without a name.

        Raises BadInput where several have no name: the last one may be anybody's.
        """
        if self.name:
            known = self.kept.get(self.name)
        elif len(self.unnamed) > 1:
            raise BadInput(
                "this client has had calls of more than one conversation",
                place="fitted",
                hint="use client.fitted_of(answer), or client.conversation(name).fitted",
            )
        else:
            known = next((self.kept[key] for key in self.unnamed if key in self.kept), None)
        return known.fitted if known else None

    def find(self, request: Mapping[str, Any], dialect: Dialect) -> tuple[str | int, Conversation]:
        """The conversation that a request continues; a fork of one that it shares answers with; a new one."""
        if self.name:
            return self.name, self._of_name(dialect)
        turns = _turns(request)
        near = self._resembling(turns, dialect)
        memo = _branched(near.memo) if near else RequestMemo()
        log = dialect.parse(request, memo=memo.parse).log
        said = _said(log, near.said if near else NOTHING)
        new = Conversation(memo=memo, dialect=dialect.name, turns=turns, said=said)
        close = max((_closeness(new, known, key) for key, known in self.kept.items()), default=_FAR)
        if not close.continues and close.shared <= said.spoken:
            return next(self.numbers), new
        known = self.kept[close.key]
        if close.continues and close.same_system:
            known.memo.parse = memo.parse
            return close.key, msgspec.structs.replace(known, said=said, turns=turns)
        shared = [name for name, _ in refs(log)][: len(said.system) + close.shared]
        ledger = rewind(known.ledger, shared)
        memo.build = copy(known.memo.build)
        fork = msgspec.structs.replace(new, ledger=ledger, windows=known.windows)
        return next(self.numbers), fork

    def _of_name(self, dialect: Dialect) -> Conversation:
        """The conversation of this name. A memo holds for one dialect, and a client may speak two."""
        known = self.kept.get(self.name) or Conversation(dialect=dialect.name)
        if known.dialect == dialect.name:
            return known
        return msgspec.structs.replace(known, dialect=dialect.name, memo=RequestMemo())

    def _resembling(self, turns: tuple[Any, ...], dialect: Dialect) -> Conversation | None:
        """A conversation of which much is said again: its memo spares reading that once more.

        It decides nothing. Of those whose last turn stands here in its place the longest is taken, else of
        a few whose first turn does, the one with most of them.
        """
        mine = [
            known
            for key, known in reversed(self.kept.items())
            if isinstance(key, int) and known.dialect == dialect.name and known.turns
        ]
        continued = [known for known in mine if _stands(known.turns, turns, len(known.turns) - 1)]
        if continued:
            return max(continued, key=lambda known: len(known.turns))
        begun = [known for known in mine if _stands(known.turns, turns, 0)][:ALIKE]
        return max(begun, key=lambda known: _in_common(known.turns, turns), default=None)

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
        if isinstance(key, int) and len(self.unnamed) < 2:  # two are enough to know that there are several
            self.unnamed.add(key)
        self.kept[key] = known
        self.kept.move_to_end(key)
        while len(self.kept) > CONVERSATIONS:
            self.kept.popitem(last=False)
        return key


ALIKE = 8
"""How many conversations that begin alike are looked at for one whose memo spares most work."""


def _turns(request: Mapping[str, Any]) -> tuple[Any, ...]:
    """The messages, items or contents of a request, as they came."""
    for name in ("messages", "input", "contents"):
        value = request.get(name)
        if isinstance(value, list | tuple):
            return tuple(value)
    return ()


def _stands(known: tuple[Any, ...], turns: tuple[Any, ...], at: int) -> bool:
    """Whether the turn at this place is the same in both."""
    if at >= len(turns):
        return False
    try:
        return bool(known[at] is turns[at] or known[at] == turns[at])
    except Exception:  # noqa: BLE001 - a foreign object may do anything when compared
        return False


def _in_common(known: tuple[Any, ...], turns: tuple[Any, ...]) -> int:
    """How many turns both begin with."""
    at = 0
    while at < len(known) and _stands(known, turns, at):
        at += 1
    return at


def _branched(memo: RequestMemo) -> RequestMemo:
    """A memo that knows what this one knows of parsing, and may learn something else from here on."""
    branch = RequestMemo()
    branch.parse.known = list(memo.parse.known)
    return branch


class _Close(NamedTuple):
    """How near a known conversation is to a request: the nearest is the greatest, of equals the newest."""

    shared: int = 0
    continues: bool = False
    same_system: bool = False
    key: int = -1


_FAR = _Close()


def _closeness(new: Conversation, known: Conversation, key: str | int) -> _Close:
    if isinstance(key, str) or known.dialect != new.dialect:
        return _FAR
    shared = _shared(new.said.chain, known.said.chain)
    return _Close(shared, shared == len(known.told), new.said.system == known.said.system, key)


def _shared(one: tuple[bytes, ...], other: tuple[bytes, ...]) -> int:
    """How many links two chains begin with: equal at one place means equal at all before it."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[middle - 1] == other[middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low
