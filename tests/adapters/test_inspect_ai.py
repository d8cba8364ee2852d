"""Inspect's agent over a scripted model, with lamina's compaction."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("inspect_ai.model", reason="inspect-ai is not installed: run `make adapters` to test it")

from inspect_ai import Task, eval  # noqa: A004 - Inspect's
from inspect_ai.agent import react, run
from inspect_ai.dataset import Sample
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    ResponseSchema,
    get_model,
    modelapi,
)
from inspect_ai.solver import Solver, TaskState, solver
from inspect_ai.tool import Tool, ToolCall, tool
from inspect_ai.util import json_schema
from pydantic import TypeAdapter

from lamina.adapters.bridge import Turn
from lamina.adapters.chat_turns import write_tool
from lamina.adapters.inspect_ai import CODEC, LaminaCompaction, LaminaSampleState, recall
from lamina.core.values import Budget
from lamina.errors import BadInput
from lamina.models.counters import counter_for
from tests.adapters import over_wire
from tests.adapters.long_answer import ANSWER_TEXT, MARK, LongAnswer
from tests.adapters.long_session import (
    BUDGET,
    SYSTEM,
    TURNS,
    Script,
    check_counts,
    check_session,
    read_page,
)

MESSAGES = TypeAdapter(list[ChatMessage])


@modelapi(name="scripted")
class ScriptedAPI(ModelAPI):
    """Answers as the script says, and records what it gets. Adds a tenth to each count, as Inspect does."""

    def __init__(self, model_name: str, *, script: Script, **_: Any) -> None:
        super().__init__(model_name)
        self.script = script

    async def count_text_tokens(self, text: str) -> int:
        return int(counter_for("").count(text) * 1.1)

    async def generate(
        self,
        input: Any,  # noqa: A002 - Inspect's
        tools: Any,
        tool_choice: Any,  # noqa: ARG002
        config: Any,
    ) -> ModelOutput:
        turns = [turn for message in input for turn in CODEC.write(message)]
        definitions = [
            write_tool(each.name, each.description, each.parameters.model_dump(exclude_none=True))
            for each in tools
        ]
        head: dict[str, Any] = {}
        if config.response_schema is not None:
            schema = config.response_schema.model_dump(exclude_none=True)
            head["response_format"] = {"type": "json_schema", "json_schema": schema}
        answer = self.script.answer(turns, definitions, **head)
        if not answer.name:
            return ModelOutput.from_content("scripted", answer.text)
        return ModelOutput.for_tool_call(
            "scripted", answer.name, answer.arguments, tool_call_id=answer.call_id, content="I read."
        )


@tool(name="read_page")
def reader() -> Tool:
    async def execute(number: int) -> str:
        """Read a page.

        Args:
            number: The number of the page.

        """
        return read_page(number)

    return execute


def play(
    folder: Path, script: Script, turns: Sequence[int], fitted: bool, response_schema: Any = None
) -> None:
    """Run a sample whose solver takes up what another one left: its messages and lamina's state."""
    path = folder / "sample.json"
    saved: dict[str, Any] = {"messages": [], "lamina": {}}
    if path.exists():
        saved = json.loads(path.read_text(encoding="utf-8"))
    solver = read_pages(saved, script, turns, fitted, response_schema)
    config = GenerateConfig(response_schema=response_schema)
    task = Task(dataset=[Sample(input="")], solver=solver, config=config)
    model = get_model("scripted/model", memoize=False, script=script)
    [log] = eval(task, model=model, log_dir=str(folder / "logs"), display="none", score=False)
    assert log.status == "success", log.error
    path.write_text(json.dumps(saved), encoding="utf-8")


@solver
def read_pages(
    saved: dict[str, Any],
    script: Script,
    turns: Sequence[int],
    fitted: bool,
    response_schema: Any = None,
    *,
    budget: Budget = BUDGET,
) -> Solver:
    tools: list[Any] = [reader()]
    compaction = None
    if fitted:
        tools.append(recall())
        compaction = LaminaCompaction(budget=budget, response_schema=response_schema)
    agent = react(prompt=None, tools=tools, submit=False, compaction=compaction)

    async def solve(state: TaskState, generate: Any) -> TaskState:  # noqa: ARG001 - Inspect's
        lamina = state.store_as(LaminaSampleState)
        lamina.ledger = saved["lamina"].get("ledger")
        lamina.history = MESSAGES.validate_python(saved["lamina"].get("history", []))
        messages = MESSAGES.validate_python(saved["messages"]) or [ChatMessageSystem(content=SYSTEM)]
        for turn in turns:
            messages = (await run(agent, [*messages, ChatMessageUser(content=script.begin(turn))])).messages
        saved["messages"] = MESSAGES.dump_python(messages, mode="json")
        saved["lamina"] = lamina.model_dump(mode="json")
        return state

    return solve


def test_a_long_session(tmp_path: Path, record_property: Any) -> None:
    """Inspect tells a strategy no reports: it counts itself, and learns from them when it does."""
    check_session(play, __name__, tmp_path, record_property, has_reports=False)


def test_a_structured_answer_is_counted(tmp_path: Path) -> None:
    """Inspect adds the schema to each request, and counts it nowhere."""
    schema = ResponseSchema(name="long", json_schema=json_schema(LongAnswer))
    asked = partial(play, response_schema=schema)
    requests = check_counts(asked, tmp_path, turns=TURNS, last_words=ANSWER_TEXT)
    assert MARK in json.dumps(requests[0])


def test_what_is_not_lowered_in_a_message_stays_its_own() -> None:
    reasoning = ContentReasoning(reasoning="Let me see.", signature="signed")
    call = ToolCall(id="one", function="run", arguments={"command": "long"})
    message = ChatMessageAssistant(content=[reasoning, ContentText(text="I run it.")], tool_calls=[call])
    turn = CODEC.write(message)[0]
    turn["tool_calls"][0]["function"]["arguments"] = "{}"
    lowered = CODEC.read([Turn(wire=turn)], message)
    assert lowered.id == message.id
    assert lowered.content == [reasoning, ContentText(text="I run it.")]
    assert lowered.tool_calls[0].arguments == {}
    assert message.tool_calls == [call]


def test_a_strategy_needs_a_budget() -> None:
    nothing: Any = None
    with pytest.raises(BadInput, match="there is no budget"):
        LaminaCompaction(budget=nothing)
    assert LaminaCompaction(budget=Budget(window=10_000, reserve=2_000)).threshold == 7_600


class Vocabulary:
    """Encodes a text as so many tokens as lamina counts."""

    def encode(self, text: str, **_: Any) -> list[int]:
        return [0] * counter_for(over_wire.OPENAI).count(text)


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
def test_over_the_wire(
    api: str, tmp_path: Path, record_property: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Inspect would fetch a vocabulary from the network.
    monkeypatch.setattr("tiktoken.encoding_for_model", lambda _: Vocabulary())

    def run(server: over_wire.StrictServer) -> None:
        arguments: dict[str, Any] = {"api_key": "none", "memoize": False}
        if api == "messages":
            pytest.importorskip("anthropic")
            model = get_model(f"anthropic/{over_wire.ANTHROPIC}", base_url=server.url, **arguments)
        else:
            pytest.importorskip("openai")
            arguments["responses_api"] = api == "responses"
            model = get_model(f"openai/{over_wire.OPENAI}", base_url=f"{server.url}/v1", **arguments)
        saved: dict[str, Any] = {"messages": [], "lamina": {}}
        turns = range(over_wire.TURNS)
        solver = read_pages(saved, server.script, turns, True, budget=over_wire.BUDGET)
        config = GenerateConfig(max_retries=0, max_tokens=900)
        task = Task(dataset=[Sample(input="")], solver=solver, config=config)
        [log] = eval(task, model=model, log_dir=str(tmp_path / "logs"), display="none", score=False)
        assert log.status == "success", log.error

    over_wire.play_over_wire(f"{api}, run", run, record_property)
