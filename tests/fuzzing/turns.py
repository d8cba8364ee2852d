"""What is known of one turn, for the oracles: what the client sent, what came of it, and the turn before."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from typing import Any, Protocol

import msgspec

from lamina.core import Counter
from lamina.core.values import Calibration
from lamina.errors import NotFound
from tests.fuzzing.counting import counter_named, says_nothing
from tests.fuzzing.history import Message, Settings
from tests.fuzzing.reading import Block, read, stream
from tests.fuzzing.validity import breaches
from tests.fuzzing.validity.breach import Breach
from tests.fuzzing.words import canaries

Json = Mapping[str, Any]


class FittedRequest(Protocol):
    """What a fit gives back, as far as a client is concerned."""

    @property
    def request(self) -> dict[str, Any]: ...

    @property
    def ledger(self) -> Any: ...

    def recall(self, key: str) -> str: ...


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What is tried: `fit_request` and `RequestMemo`, or something that behaves like them."""

    fit: Callable[..., FittedRequest]
    memo: Callable[[], Any]


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """What an oracle found: `rule` says which of its rules, `turn` the number of the move."""

    oracle: str
    rule: str
    turn: int
    detail: str

    @property
    def sort(self) -> str:
        return f"{self.oracle}:{self.rule}" if self.rule else self.oracle

    def __str__(self) -> str:
        return f"{self.sort} at turn {self.turn}: {self.detail}"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one call gave: a fitted request and its ledger as JSON, or an error."""

    fitted: FittedRequest | None = None
    sent: str = ""
    ledger: str = ""
    error: Exception | None = None

    @property
    def words(self) -> str:
        return self.sent + self.ledger if self.error is None else type(self.error).__name__


class Turn:
    """One turn. `came` is the client's request as JSON text before the call, `outcome` what the call gave.

    `before` is the last turn whose request was sent; `last` says that no turn comes after this one.
    Everything that several oracles need is worked out once.
    """

    def __init__(
        self,
        *,
        number: int,
        move: str,
        settings: Settings,
        messages: Sequence[Message],
        came: str,
        outcome: Outcome,
    ) -> None:
        self.number = number
        self.move = move
        self.settings = settings
        self.messages = messages
        self.came = came
        self.outcome = outcome
        self.arguments: dict[str, Any] = {}
        self.came_after = came
        self.before: Turn | None = None
        self.ledger_before = "null"
        self.ledger_before_after = "null"
        self.without_memo: Outcome | None = None
        self.repeated: Outcome | None = None
        self.same_arguments = False
        self.last = False
        self._recalled: dict[str, str | None] = {}

    def recalled(self, name: str) -> str | None:
        """What answers to a name; None if nothing does."""
        if name not in self._recalled:
            try:
                self._recalled[name] = self.fitted.recall(name)
            except NotFound:
                self._recalled[name] = None
        return self._recalled[name]

    @property
    def dialect(self) -> str:
        return self.settings.dialect

    @property
    def fitted(self) -> FittedRequest:
        fitted = self.outcome.fitted
        if fitted is None:
            raise ValueError("nothing was sent")
        return fitted

    @cached_property
    def came_request(self) -> dict[str, Any]:
        made: dict[str, Any] = json.loads(self.came)
        return made

    @cached_property
    def sent_request(self) -> dict[str, Any]:
        made: dict[str, Any] = json.loads(self.outcome.sent)
        return made

    @cached_property
    def came_blocks(self) -> list[Block]:
        return read(self.came_request, self.dialect)

    @cached_property
    def sent_blocks(self) -> list[Block]:
        return read(self.sent_request, self.dialect)

    @cached_property
    def came_stream(self) -> list[str]:
        return stream(self.came_blocks)

    @cached_property
    def sent_stream(self) -> list[str]:
        return stream(self.sent_blocks)

    @cached_property
    def came_data(self) -> set[str]:
        return {block.data for block in self.came_blocks}

    @cached_property
    def sent_data(self) -> set[str]:
        return {block.data for block in self.sent_blocks}

    @cached_property
    def came_canaries(self) -> set[str]:
        return canaries(self.came)

    @cached_property
    def came_breaches(self) -> list[Breach]:
        return breaches(self.came_request, self.dialect, self.came_request)

    @cached_property
    def ledger(self) -> dict[str, Any]:
        made: dict[str, Any] = json.loads(self.outcome.ledger)
        return made

    @cached_property
    def cuts(self) -> list[Any]:
        return list(self.ledger.get("cuts", ()))

    @cached_property
    def cuts_before(self) -> list[Any]:
        ledger = json.loads(self.ledger_before)
        return list(ledger.get("cuts", ())) if ledger else []

    @property
    def new_cuts(self) -> list[Any]:
        return self.cuts[len(self.cuts_before) :]

    @property
    def counter(self) -> Counter:
        return counter_named(self.settings.counter, self.settings.model)

    @property
    def calibration(self) -> Calibration | None:
        found = self.ledger.get("calibration")
        return Calibration(millis=found["millis"]) if found else None

    @property
    def reported_share(self) -> int:
        """How many thousandths of lamina's count the provider has reported, at most."""
        before = json.loads(self.ledger_before) or {}
        known = (before.get("calibration") or {}).get("millis", 1_000)
        reported = self.arguments.get("usage")
        counted = (before.get("mark") or {}).get("tokens")
        if not reported or not counted:
            return int(known)
        return max(int(known), int(reported) * 1_000 // int(counted))

    @property
    def room(self) -> int:
        settings = self.settings
        reserve = settings.reserve
        if reserve is None:
            reserve = min(settings.output, settings.window // 2)
        return settings.window - reserve

    @cached_property
    def only_appended(self) -> bool:
        """Whether the client did nothing since the last request but add to it."""
        if self.before is None:
            return False
        past = self.before.came_stream
        return self.came_stream[: len(past)] == past

    @property
    def ends_with_results(self) -> bool:
        """Whether results of tools follow the newest message of the model, whatever is said beside them."""
        last = max((i for i, m in enumerate(self.messages) if m.voice == "assistant"), default=-1)
        return any(message.voice == "tool" for message in self.messages[last + 1 :])

    @property
    def ends_blank(self) -> bool:
        """Whether the newest message is the user's and says nothing."""
        newest = self.messages[-1] if self.messages else None
        return newest is not None and newest.voice == "user" and says_nothing(newest)

    @cached_property
    def in_a_tool_loop(self) -> bool:
        """Whether the newest message of the model has calls, and the user says nothing after it."""
        last = max((i for i, m in enumerate(self.messages) if m.voice == "assistant"), default=-1)
        if last < 0 or not self.messages[last].of("call"):
            return False
        after = self.messages[last + 1 :]
        return all(m.voice == "system" or (m.voice == "tool" and not m.of("text")) for m in after)


def hash_before(blocks: Sequence[Block]) -> str:
    """What thinking is bound to: everything before it but other thinking."""
    said = [f"{block.role}:{block.data}" for block in blocks if block.sort != "thinking"]
    return sha256("\n".join(said).encode("utf-8", "surrogatepass")).hexdigest()
