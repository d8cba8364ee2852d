"""The frameworks' own clients in front of a server that is as strict as the APIs that it plays.

The model reads pages of a manual, two at once, recalls one thing if it sees a handle, and answers. A request
that breaks a rule of its API, or that is over the window, is refused with 400. So a run that ends has sent no
such request. A test module of an adapter has one way to run its framework for each API and each mode.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from lamina.core.values import Budget
from lamina.dialects import recognise
from lamina.errors import LaminaError
from lamina.fitting import RequestMemo
from lamina.models.counters import counter_for
from tests.adapters.long_session import FIELDS, Answer, Script, count_at_server, count_requests
from tests.wrapped.scripted_api import ApiFailure, Call, Said, scripted_api

BUDGET = Budget(window=9_000, reserve=1_000)
TURNS = 3
CALLS = 8

OPENAI = "gpt-5"
ANTHROPIC = "claude-opus-4-6"
GEMINI = "gemini-3-pro"


@dataclass
class StrictServer:
    """Where the server is, the script that it plays, and what it refused. `write` is how the model speaks."""

    write: Callable[[Answer], Said]
    url: str = ""
    script: Script = field(default_factory=lambda: Script(calls=CALLS))
    refused: list[str] = field(default_factory=list)
    memo: RequestMemo = field(default_factory=RequestMemo)

    def answer(self, request: dict[str, Any]) -> Said:
        """What the model says. Raises ApiFailure for a request that the API would refuse."""
        dialect = recognise(request)
        problems = [violation.message for violation in dialect.wire.check(request)]
        if not problems:
            tokens = self.count_tokens(request)
            if tokens > BUDGET.window:
                problems.append(f"{tokens} tokens are over the window")
        if problems:
            self.refused += problems
            raise ApiFailure(400)
        turns_field = FIELDS[dialect.name]
        if isinstance(request[turns_field], str):
            return ["Hello."]  # a client that only tries the API
        head = {name: value for name, value in request.items() if name not in (turns_field, "tools")}
        answer = self.script.answer(
            request[turns_field], request.get("tools") or (), field=turns_field, **head
        )
        return self.write(answer)

    def count_tokens(self, request: dict[str, Any]) -> int:
        """The tokens of a request. Of a part of one, which a client only wants to be counted, its text."""
        try:
            return count_at_server(request, self.memo)
        except LaminaError:
            return counter_for(OPENAI).count(json.dumps(request))


def write_calls(answer: Answer) -> Said:
    """What the model does next, in calls. It reads two pages at once."""
    if not answer.name:
        return [answer.text]
    calls: Said = [Call(answer.name, answer.arguments, answer.call_id)]
    if answer.name == "read_page":
        second = {"number": answer.arguments["number"] + 1_000}
        calls.append(Call(answer.name, second, f"{answer.call_id}_b"))
    return calls


@contextmanager
def strict_server(write: Callable[[Answer], Said] = write_calls) -> Iterator[StrictServer]:
    """A server that runs. `write` says how the model speaks."""
    server = StrictServer(write)
    with scripted_api(server.answer, count_tokens=server.count_tokens) as api:
        server.url = api.url
        yield server


def play_over_wire(
    way: str,
    run: Callable[[StrictServer], None],
    record_property: Callable[[str, object], None],
    *,
    recalls: int = 1,
    write: Callable[[Answer], Said] = write_calls,
) -> None:
    """Run a framework, and look at what the server got. `way` says which API and mode that was.

    It is recorded for `tools.adapters`, which prints it as a row of a table. A framework that shows no
    handles in this mode has no `recalls`.
    """
    with strict_server(write) as server:
        run(server)
    assert server.refused == []
    account = count_requests(server.script.requests, budget=BUDGET)
    assert account.invalid == []
    assert account.over == 0
    assert account.requests >= TURNS * (CALLS + 1)
    assert account.cuts >= 2
    assert len(server.script.recalled) >= recalls
    assert all("press key" in text for text in server.script.recalled)
    row = [way, account.requests, account.cuts, max(account.sizes), len(server.script.recalled)]
    record_property("wire", " ".join(map(str, row)))
