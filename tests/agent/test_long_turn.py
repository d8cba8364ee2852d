"""One turn of two hundred steps in a window of 16,000 tokens; a fact of its third step is needed late.

The model of these tests knows nothing but the request that it is sent: it looks for handles in it, and asks
for what they stand for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from lamina.agent import Action, Agent, TurnLimits
from lamina.clients import CallEvent
from lamina.core.values import Budget, Layer
from lamina.dialects import DIALECTS, Tool
from lamina.models.counters import counter_for
from lamina.sessions import Session
from lamina.testing import ScriptedAnswer, ScriptedClient
from tests.agent.working import SCHEMA, opened
from tests.sessions.talking import awaited

FACT = "the lighthouse opens if one hums to the keeper"
HUMMED = "hums to the keeper"  # plain words: a digest quotes names and numbers that were read, and not these
HANDLE = re.compile(r'recall(?:=|\()\\?"([\w@#.-]+)')
BUDGET = Budget(window=16_000, reserve=1_000)
STEPS, FIRST, LATE = 200, 3, 190


class Reader:
    """A model that reads two hundred files; at step 190 it needs what stood in the third."""

    def __init__(self) -> None:
        self.step = 0
        self.tried: list[str] = []
        self.found_at = 0
        self.knew_before: list[int] = []

    def __call__(self, request: Mapping[str, Any]) -> ScriptedAnswer:
        self.step += 1
        text = json.dumps([request.get(name) for name in ("messages", "system")], ensure_ascii=False)
        if HUMMED in text and self.step < LATE:
            self.knew_before.append(self.step)
        if self.step > STEPS:
            return ScriptedAnswer(text="All read.")
        if self.step < LATE or self.found_at:
            return self._calls("read", {"path": f"part_{self.step}.txt"})
        if HUMMED in text:
            self.found_at = self.step
            return self._calls("read", {"path": f"part_{self.step}.txt"}, text=self._remembered(text))
        handle = next(one for one in HANDLE.findall(text) if one not in self.tried)
        self.tried.append(handle)
        return self._calls("recall", {"key": handle, "find": "lighthouse"})

    def _calls(self, name: str, arguments: dict[str, str], *, text: str = "") -> ScriptedAnswer:
        call = CallEvent(id=f"call-{self.step}", name=name, arguments=json.dumps(arguments))
        return ScriptedAnswer(text=text or f"Step {self.step}.", calls=(call,))

    @staticmethod
    def _remembered(text: str) -> str:
        return f"One {HUMMED}." if HUMMED in text else "I do not know."


async def part(arguments: dict[str, Any]) -> str:
    """A file of about three hundred tokens."""
    number = int(arguments["path"].removeprefix("part_").removesuffix(".txt"))
    lines = [f"{i}: the {number + i} lamps of row {i * number} burn" for i in range(20)]
    if number == FIRST:
        lines[10] = FACT
    return "\n".join(lines)


@pytest.mark.parametrize("dialect", ["anthropic", pytest.param("openai_chat", marks=pytest.mark.thorough)])
@awaited
async def test_a_fact_of_step_3_is_recalled_at_step_190_of_200_under_16k(dialect: str) -> None:
    model, sizes = Reader(), []

    async def weigh(session: Session, _: dict[str, Any]) -> None:
        sizes.append((await session.build()).tokens)

    client = ScriptedClient(model, dialect=dialect)
    agent = Agent(
        client=client,
        limits=TurnLimits(steps=STEPS + 1),
        before=(weigh,),
        actions=(Action(tool=Tool(name="read", schema=SCHEMA), run=part),),
    )
    async with opened(agent, budget=BUDGET, counter=counter_for("gpt-5")) as session:
        outcome = await agent.run(session, "Read all parts, and say how the lighthouse opens.")
        layers = {entry.segment.kind: entry.layer for entry in (await session.build()).entries}
        texts = [one.text for one in session.dialogue()]
        cuts = session.ledger.cuts
        assert session.turns == 1
    assert (outcome.text, outcome.spent.steps) == ("All read.", STEPS + 1)
    assert texts[model.found_at] == f"One {HUMMED}."
    assert LATE < model.found_at <= LATE + 8
    assert max(model.knew_before) < 100, "the fact must be out of sight long before it is needed"
    assert layers["tool_result"] is Layer.STEPS
    assert 2 < len(cuts) < STEPS / 4
    assert max(sizes) <= BUDGET.window - 1_000
    for request in client.requests[:: STEPS // 10]:
        assert DIALECTS[dialect].wire.check(request) == []
