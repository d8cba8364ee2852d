"""A played script as a program that needs nothing but lamina, for those who do not have the fuzzer."""

from __future__ import annotations

import json

from tests.fuzzing.play import turns
from tests.fuzzing.scripts import Script
from tests.fuzzing.turns import Subject, Turn

_HEAD = '''"""Plays {script}"""

import json

from lamina import Budget, LaminaError, Policy, fit_request
from lamina.core.tokens import CHARS4, ESTIMATE, RFC, STRICT
from lamina.fitting import RequestMemo

COUNTERS = {{"": None, "chars4": CHARS4, "estimate": ESTIMATE, "rfc": RFC, "strict": STRICT}}
ledger, memo = None, RequestMemo()


def play(move, request, *, window, reserve, counter, breakpoints, **arguments):
    global ledger
    print(f"--- {{move}}")
    budget = Budget(window=window, reserve=reserve)
    policy = Policy(budget=budget, counter=COUNTERS[counter], breakpoints=breakpoints)
    try:
        fitted = fit_request(json.loads(request), ledger=ledger, policy=policy, memo=memo, **arguments)
    except LaminaError as error:
        print(type(error).__name__, error)
        return
    ledger = json.loads(json.dumps(fitted.ledger.dump()))
    sent = fitted.request
    for message in sent.get("messages") or sent.get("input") or sent["contents"]:
        print("   ", json.dumps(message, ensure_ascii=False)[:160])


'''


def program(script: Script, subject: Subject) -> str:
    """The text of a program that makes the same calls and prints what is sent."""
    calls = [_call(turn) for turn in turns(script, subject)]
    return _HEAD.format(script=script) + "\n".join(calls)


def _call(turn: Turn) -> str:
    settings = turn.settings
    named = {
        "window": settings.window,
        "reserve": settings.reserve,
        "counter": settings.counter,
        "dialect": settings.dialect,
        "breakpoints": settings.breakpoints,
    }
    named |= {name: turn.arguments[name] for name in ("idle", "usage") if name in turn.arguments}
    arguments = ", ".join(f"{name}={value!r}" for name, value in named.items())
    request = json.dumps(turn.came_request, ensure_ascii=False)
    return f"play({turn.move!r}, {request!r}, {arguments})\n"
