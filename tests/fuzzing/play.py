"""Plays a script: move after move through `fit`, the ledger through JSON, every turn before the oracles."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import msgspec

from lamina.core.values import Budget
from lamina.fitting import Policy
from tests.fuzzing.client import Client
from tests.fuzzing.counting import COUNTERS, count
from tests.fuzzing.moves import MOVES
from tests.fuzzing.oracles import judge
from tests.fuzzing.scripts import Script
from tests.fuzzing.traits import contents_of
from tests.fuzzing.turns import Outcome, Subject, Turn, Violation, hash_before

REPEATED = 4
"""One turn in so many is fitted a second time with the same arguments."""


class Played(msgspec.Struct, kw_only=True):
    """A conversation that was played: what was done, what it held, how it went, what was wrong."""

    script: Script
    moves: list[str] = []
    contents: set[str] = set()
    turns: int = 0
    cuts: int = 0
    folds: int = 0
    refusals: list[str] = []
    violations: list[Violation] = []


def play(script: Script, subject: Subject, *, stop_at: str = "") -> Played:
    """Play a script. `stop_at`: no further than the first violation of this sort."""
    played = Played(script=script)
    for turn in turns(script, subject):
        _note(played, turn)
        if stop_at and any(violation.sort == stop_at for violation in played.violations):
            break
    return played


def turns(script: Script, subject: Subject) -> Iterator[Turn]:
    """The turns of a script, not judged yet.

    Each must be judged before the next one is asked for, since the client goes on with the same messages.
    """
    client = Client(script.seed, script.without)
    memo = subject.memo()
    sent: Turn | None = None
    latest: Turn | None = None
    ledger: Any = None
    for number, name in script.names:
        client.idle = None
        if not MOVES[name](client, client.words(f"{number}")):
            continue
        turn = _turn(client, subject, memo, ledger, number=number, move=name)
        turn.before = sent
        again = name == "retry" and latest is not None and latest is sent
        turn.same_arguments = again and client.reported is None
        turn.last = number == script.moves[-1]
        yield turn
        latest = turn
        turn.before = None  # or every turn would keep all turns before it
        if turn.outcome.error is None:
            ledger = turn.ledger
            sent = turn
            client.reported = _reported(client, turn)
            client.answering = f"{client.settings.model} {hash_before(turn.sent_blocks)}"


def _turn(client: Client, subject: Subject, memo: Any, ledger: Any, *, number: int, move: str) -> Turn:
    request = client.request()
    came = json.dumps(request, ensure_ascii=False)
    given = json.dumps(ledger)
    arguments = _arguments(client, ledger)
    outcome = _outcome(subject, request, arguments, memo)
    settings = copy.copy(client.settings)
    messages = copy.copy(client.history.messages)
    turn = Turn(number=number, move=move, settings=settings, messages=messages, came=came, outcome=outcome)
    turn.arguments = arguments
    turn.without_memo = _outcome(subject, request, arguments, None)
    if number % REPEATED == 0:
        turn.repeated = _outcome(subject, json.loads(came), arguments, None)
    turn.came_after = json.dumps(request, ensure_ascii=False)
    turn.ledger_before = given
    turn.ledger_before_after = json.dumps(ledger)
    return turn


def _arguments(client: Client, ledger: Any) -> dict[str, Any]:
    settings = client.settings
    found: dict[str, Any] = {
        "dialect": settings.dialect,
        "ledger": ledger,
        "policy": Policy(
            budget=Budget(window=settings.window, reserve=settings.reserve),
            breakpoints=settings.breakpoints,
            counter=COUNTERS.get(settings.counter),
        ),
    }
    if client.idle is not None:
        found["idle"] = client.idle
    if client.reported is not None:
        found["usage"] = client.reported
    return found


def _reported(client: Client, turn: Turn) -> int | None:
    """What the provider says that the request had in tokens, if the client tells lamina."""
    factor = client.profile.reported_usage
    if not factor:
        return None
    return int(count(turn.sent_request, turn.dialect, turn.counter, None) * factor) + 1


def _outcome(subject: Subject, request: Any, arguments: dict[str, Any], memo: Any) -> Outcome:
    try:
        fitted = subject.fit(request, memo=memo, **arguments)
    except Exception as error:  # noqa: BLE001 - whatever it is, an oracle judges it
        return Outcome(error=error)
    sent = json.dumps(fitted.request, ensure_ascii=False)
    ledger = json.dumps(fitted.ledger.dump(), ensure_ascii=False)
    return Outcome(fitted=fitted, sent=sent, ledger=ledger)


def _note(played: Played, turn: Turn) -> None:
    played.moves.append(turn.move)
    played.turns += 1
    played.contents |= contents_of(turn)
    played.violations += judge(turn)
    if turn.outcome.error is not None:
        played.refusals.append(type(turn.outcome.error).__name__)
        return
    played.cuts += len(turn.new_cuts)
    played.folds = max(played.folds, len(turn.ledger.get("folds", ())))
