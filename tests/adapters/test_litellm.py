"""A loop over litellm.acompletion with a scripted provider, and lamina's callback."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # it would ask the network
pytest.importorskip(
    "litellm.integrations.custom_logger", reason="litellm is not installed: run `make adapters` to test it"
)

import litellm
from litellm import CustomLLM

from lamina.adapters.chat_turns import write_call, write_output_format, write_result, write_tool
from lamina.adapters.litellm import LaminaLogger
from lamina.core.values import Budget
from tests.adapters.long_answer import LongAnswer
from tests.adapters.long_session import (
    BUDGET,
    SYSTEM,
    TURNS,
    Account,
    Answer,
    Script,
    count_requests,
    read_page,
)

TOOLS = [
    write_tool(
        "read_page", "Reads a page.", {"type": "object", "properties": {"number": {"type": "integer"}}}
    )
]


class ScriptedProvider(CustomLLM):
    """Answers as the script says, and records what it gets."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self.script = script

    async def acompletion(self, *_: Any, **arguments: Any) -> Any:
        messages = [dict(message) for message in arguments["messages"]]
        answer = self.script.answer(messages, arguments["optional_params"].get("tools") or ())
        return litellm.ModelResponse(
            choices=[{"message": write_answer(answer), "finish_reason": "stop"}],
            usage=litellm.Usage(prompt_tokens=answer.tokens, completion_tokens=9),
        )


def write_answer(answer: Answer) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
    if answer.name:
        message["tool_calls"] = [write_call(answer.call_id, answer.name, answer.arguments)]
    return message


def play(folder: Path, script: Script, turns: Sequence[int], fitted: bool) -> list[Any]:
    """Ask the questions of these turns. What the caller has of the conversation is in the folder."""
    litellm.custom_provider_map = [{"provider": "scripted", "custom_handler": ScriptedProvider(script)}]
    litellm.callbacks = [LaminaLogger(budget=BUDGET)] if fitted else []
    history: list[Any] = [{"role": "system", "content": SYSTEM}]
    for turn in turns:
        history.append({"role": "user", "content": script.begin(turn)})
        asyncio.run(ask(history))
    (folder / "history.json").write_text(json.dumps(history), encoding="utf-8")
    return history


async def ask(history: list[Any]) -> None:
    while True:
        answer = await litellm.acompletion(model="scripted/manual", messages=list(history), tools=TOOLS)
        message = answer.choices[0].message
        calls = [call.model_dump() for call in message.tool_calls or ()]
        turn: dict[str, Any] = {"role": "assistant", "content": message.content}
        if calls:
            turn["tool_calls"] = calls
        history.append(turn)
        if not calls:
            return
        for call in calls:
            number = json.loads(call["function"]["arguments"])["number"]
            history.append(write_result(call["id"], read_page(number)))


@pytest.fixture(autouse=True)
def _restore() -> Any:
    yield
    litellm.callbacks = []
    litellm.custom_provider_map = []


def test_a_long_session(tmp_path: Path) -> None:
    bare = Script()
    play(tmp_path, bare, range(TURNS), False)
    assert count_requests(bare.requests).over > 50

    script = Script()
    history = play(tmp_path, script, range(TURNS), True)
    account: Account = count_requests(script.requests)
    assert account.invalid == []
    assert account.over == 0
    assert 2 <= account.cuts <= 12
    assert len(script.recalled) >= 3
    assert all("press key" in text for text in script.recalled)
    # The caller sees no recall and no lowered text: its history is what it would be without lamina.
    assert "recall" not in json.dumps(history)
    assert len(history) == 1 + TURNS * (1 + 2 * 25 + 1)


def test_a_stream_shows_no_handles() -> None:
    logger = LaminaLogger(budget=BUDGET)
    history: list[Any] = [{"role": "user", "content": "Read."}]
    for number in range(60):
        call = write_call(f"c{number}", "read_page", {"number": number})
        history += [{"role": "assistant", "content": None, "tool_calls": [call]}]
        history += [write_result(f"c{number}", read_page(number))]
    arguments = {"model": "gpt-5", "messages": history, "stream": True}
    fitted = asyncio.run(
        logger.async_pre_call_deployment_hook(arguments, litellm.types.utils.CallTypes.acompletion)
    )
    assert fitted is not None
    assert len(json.dumps(fitted["messages"])) < 60_000 < len(json.dumps(history))
    assert "recall" not in json.dumps(fitted["messages"])
    assert "tools" not in fitted


@pytest.mark.parametrize("output", [LongAnswer, write_output_format(LongAnswer)["response_format"]])
def test_a_structured_answer_is_counted(output: Any) -> None:
    """A history that fits is cut if a schema of a thousand tokens comes with it."""
    history: list[Any] = [{"role": "system", "content": SYSTEM}]
    for number in range(9):
        history.append({"role": "user", "content": f"What is on page {number}?"})
        history.append({"role": "assistant", "content": read_page(number)})
    history.append({"role": "user", "content": "Thank you."})
    request = {"model": "gpt-5", "messages": history}
    size = count_requests([request]).sizes[0]
    budget = Budget(window=size + 600, reserve=0, trigger=1.0)

    def fit(**arguments: Any) -> Any:
        kwargs = {**request, **arguments}
        call_type = litellm.types.utils.CallTypes.acompletion
        fitted = asyncio.run(LaminaLogger(budget=budget).async_pre_call_deployment_hook(kwargs, call_type))
        assert fitted is not None
        return fitted["messages"]

    assert fit() == history
    assert fit(response_format=output) != history
