"""smolagents' agents over a scripted model, with lamina's memory."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("smolagents", reason="smolagents is not installed: run `make adapters` to test it")

from PIL import Image
from smolagents import (
    ActionStep,
    ChatMessage,
    LogLevel,
    Model,
    OpenAIModel,
    TaskStep,
    ToolCallingAgent,
    tool,
)
from smolagents.memory import Timing, ToolCall
from smolagents.models import (
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    MessageRole,
    get_clean_message_list,
    get_tool_json_schema,
    tool_role_conversions,
)
from smolagents.monitoring import TokenUsage

from lamina.adapters.bridge import Turn
from lamina.adapters.smolagents import CODEC, LaminaCodeAgent, LaminaToolCallingAgent
from tests.adapters import long_session, over_wire
from tests.adapters.long_session import (
    BUDGET,
    CALLS,
    SYSTEM,
    TURNS,
    Answer,
    Script,
    assert_counted,
    check_counts,
    check_session,
    count_requests,
    watch_fits,
)
from tests.wrapped.scripted_api import Call, Said


@tool
def read_page(number: int) -> str:
    """Read a page.

    Args:
        number: The number of the page.

    """
    return long_session.read_page(number)


class ScriptedModel(Model):
    """Answers as the script says, and records what smolagents' models would send."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self.script = script
        self.answers = 0

    def generate(self, messages: list[Any], tools_to_call_from: Any = None, **_: Any) -> ChatMessage:
        turns = get_clean_message_list(
            messages, role_conversions=tool_role_conversions, flatten_messages_as_text=True
        )
        sent = [{"role": each["role"].value, "content": each["content"]} for each in turns]
        if tools_to_call_from is None:
            self.script.record(sent)
            return ChatMessage(
                role=MessageRole.ASSISTANT,
                content=f"{PLAN} {self.answers}: " + "read on. " * 20,
                token_usage=TokenUsage(input_tokens=self.script.sizes[-1], output_tokens=9),
            )
        answer = self.script.answer(sent, [get_tool_json_schema(each) for each in tools_to_call_from])
        self.answers += 1
        name = answer.name or "final_answer"
        function = ChatMessageToolCallFunction(
            name=name, arguments=answer.arguments or {"answer": answer.text}
        )
        call = ChatMessageToolCall(function=function, id=f"{answer.call_id}_{name}", type="function")
        usage = TokenUsage(input_tokens=answer.tokens, output_tokens=9)
        return ChatMessage(
            role=MessageRole.ASSISTANT, content="I go on.", tool_calls=[call], token_usage=usage
        )


PLAN = "Plan"


def play(
    folder: Path, script: Script, turns: Sequence[int], fitted: bool, planning_interval: int | None = None
) -> None:
    path = folder / "memory.pickle"
    options: dict[str, Any] = {
        "instructions": SYSTEM,
        "max_steps": CALLS + 5,
        "verbosity_level": LogLevel.OFF,
        "planning_interval": planning_interval,
    }
    model = ScriptedModel(script)
    if fitted:
        agent: Any = LaminaToolCallingAgent([read_page], model, budget=BUDGET, **options)
    else:
        agent = ToolCallingAgent([read_page], model, **options)
    if path.exists():
        agent.memory = pickle.loads(path.read_bytes())  # noqa: S301 - the test wrote it
    for turn in turns:
        agent.run(script.begin(turn), reset=False)
    path.write_bytes(pickle.dumps(agent.memory))


def test_a_long_session(tmp_path: Path, record_property: Any) -> None:
    check_session(play, __name__, tmp_path, record_property)


def test_plans_are_counted(tmp_path: Path) -> None:
    requests = check_counts(partial(play, planning_interval=3), tmp_path, turns=TURNS, memos=2)
    plans = [request for request in requests if not request["tools"]]
    assert len(plans) > TURNS * CALLS // 3
    assert "remaining" in str(plans[-1]["messages"][-1])
    steps = [request for request in requests if request["tools"]]
    assert 2 <= count_requests(steps).cuts <= 16  # plans between them cut nothing of their own


def test_the_question_after_the_last_step_is_counted() -> None:
    with watch_fits() as watch:
        script = Script(watch)
        agent = LaminaToolCallingAgent(
            [read_page], ScriptedModel(script), budget=BUDGET, max_steps=CALLS, verbosity_level=LogLevel.OFF
        )
        agent.run(script.begin(0) + " Be careful." * 200)
    assert "please provide an answer" in str(script.requests[-1]["messages"][-1])
    assert_counted(script, count_requests(script.requests))


def test_steps_of_many_small_calls_are_counted_as_they_are_sent() -> None:
    calls = [ToolCall(name="read_page", arguments={"number": n}, id=f"call_{n}") for n in range(40)]
    step = ActionStep(
        step_number=1, timing=Timing(start_time=0), tool_calls=calls, observations="ok", model_output="I go."
    )
    sent = [
        {"role": "assistant", "content": str(message.content[0]["text"])} for message in step.to_messages()
    ]
    task = {"role": "user", "content": "Go."}
    written, as_sent = count_requests(
        [{"messages": [task, *CODEC.write(step)]}, {"messages": [task, *sent]}]
    ).sizes
    assert as_sent <= written <= 2 * as_sent


def test_pictures_are_counted_and_go_with_their_turn() -> None:
    pictures = [Image.new("RGB", (8, 8))]
    step = ActionStep(
        step_number=1,
        timing=Timing(start_time=0),
        tool_calls=[ToolCall(name="look", arguments={}, id="call_1")],
        observations="seen",
        observations_images=pictures,
    )
    turns = CODEC.write(step)
    assert [turn["role"] for turn in turns] == ["assistant", "tool", "user"]
    task = {"role": "user", "content": "Go."}
    with_picture, without = count_requests(
        [{"messages": [task, *turns]}, {"messages": [task, *turns[:2]]}]
    ).sizes
    assert with_picture - without > 500
    lowered = CODEC.read([Turn(wire=turn, place=place) for place, turn in enumerate(turns[:2])], step)
    assert lowered.observations_images is None
    assert lowered.observations == "seen"
    (task_turn,) = CODEC.write(TaskStep(task="Look.", task_images=pictures))
    assert [part["type"] for part in task_turn["content"]] == ["text", "image_url"]


class CodingModel(Model):
    """Prints long lines in each step, recalls the first of them, and ends."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[str] = []

    def generate(self, messages: list[Any], **_: Any) -> ChatMessage:
        self.requests.append(str([message.content for message in messages]))
        handles = long_session.HANDLE.findall(self.requests[-1])
        code = f"for line in range(60): print('step {len(self.requests)}, line', line, 'is long and full')"
        if len(self.requests) == 25:
            code = f"print(recall({handles[0]!r}))"
        if len(self.requests) == 26:
            code = "final_answer('done')"
        text = f"Thought: I print.\n<code>\n{code}\n</code>"
        return ChatMessage(role=MessageRole.ASSISTANT, content=text)


def test_a_code_agent_recalls_in_its_code() -> None:
    model = CodingModel()
    options: dict[str, Any] = {"max_steps": 30, "verbosity_level": LogLevel.OFF}
    agent = LaminaCodeAgent([], model, budget=BUDGET, **options)
    assert agent.run("Print.") == "done"
    assert len(agent.memory.steps) == 27
    assert "line 59 is long and full" in agent.memory.steps[25].observations
    assert "step 2, line" not in model.requests[-1].partition("recall")[0]
    ledger = agent.memory.ledger
    agent.memory.reset()
    assert ledger is not None
    assert agent.memory.ledger is None


def test_a_lowered_step_keeps_what_was_not_lowered() -> None:
    calls = [ToolCall(name="run", arguments={"number": number}, id=f"call_{number}") for number in range(2)]
    step = ActionStep(
        step_number=1,
        timing=Timing(start_time=0),
        tool_calls=calls,
        observations="long",
        model_output="I go.",
    )
    said, first, second = CODEC.write(step)
    assert first["content"] == "Observation:\nlong"
    turns = [Turn(wire=said, place=0), Turn(wire={**first, "content": "short"}), Turn(wire=second, place=2)]
    lowered = CODEC.read(turns, step)
    assert lowered.observations == "short"
    assert lowered.tool_calls is calls
    assert step.observations == "long"


@pytest.mark.parametrize("kind", ["tools", "code"])
@pytest.mark.parametrize("stream", [False, True])
def test_over_the_wire(kind: str, stream: bool, record_property: Any) -> None:
    pytest.importorskip("openai")
    agent_class: Any = LaminaToolCallingAgent
    write = write_final_answer
    if kind == "code":
        agent_class = LaminaCodeAgent
        write = write_code

    def run(server: over_wire.StrictServer) -> None:
        model = OpenAIModel(over_wire.OPENAI, api_base=f"{server.url}/v1", api_key="none")
        agent = agent_class(
            tools=[read_page],
            model=model,
            budget=over_wire.BUDGET,
            stream_outputs=stream,
            max_steps=60,
            verbosity_level=LogLevel.OFF,
        )
        for turn in range(over_wire.TURNS):
            list(agent.run(server.script.begin(turn), stream=True, reset=turn == 0))

    way = f"chat, {kind}{' in a stream' if stream else ''}"
    over_wire.play_over_wire(way, run, record_property, write=write)


def write_final_answer(answer: Answer) -> Said:
    """A model that calls tools answers with a tool, too."""
    if answer.name:
        return over_wire.write_calls(answer)
    return [Call("final_answer", {"answer": answer.text}, answer.call_id)]


def write_code(answer: Answer) -> Said:
    name = answer.name or "final_answer"
    values = [f"{key}={value!r}" for key, value in (answer.arguments or {"answer": answer.text}).items()]
    line = f"{name}({', '.join(values)})"
    if answer.name:
        line = f"print({line})"
    return [f"I go on.\n<code>\n{line}\n</code>"]
