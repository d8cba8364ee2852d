"""OpenAI's Agents SDK in a small window: 40 tool calls in two runs of one stored session.

    pip install 'lamina-context[openai-agents]'
    python examples/adapters/openai_agents.py

The model is scripted, so no key is needed. Put yours in its place: `Agent(model="gpt-5", …)`.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from lamina.adapters.openai_agents import LaminaSession


@function_tool
def read_part(number: int) -> str:
    """Read a part of the manual."""
    return f"Part {number}. Press the key, wait for the lamp, release the key.\n" * 40


class ScriptedModel(Model):
    """Reads 20 parts in each turn, and then answers."""

    steps = 0

    async def get_response(self, *_: Any, **arguments: Any) -> ModelResponse:
        self.steps += 1
        item: Any = ResponseFunctionToolCall(
            type="function_call",
            call_id=f"call_{self.steps}",
            name="read_part",
            arguments=f'{{"number": {self.steps}}}',
        )
        if self.steps % 21 == 0:
            words = f"Read. The last request had {len(arguments['input'])} items."
            text = ResponseOutputText(type="output_text", text=words, annotations=[])
            item = ResponseOutputMessage(
                id="msg", type="message", role="assistant", status="completed", content=[text]
            )
        return ModelResponse(output=[item], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


async def ask(store: Path, question: str) -> None:
    """What one program does: open the session, run the agent, and end."""
    agent = Agent("reader", tools=[read_part], model=ScriptedModel())
    session = LaminaSession("manual", str(store), budget=16_000)
    result = await Runner.run(
        session.equip(agent), question, session=session, run_config=session.run_config(), max_turns=30
    )
    print(result.final_output)
    print(f"{len(await session.get_items())} items are kept")
    session.store.close()


async def main() -> None:
    set_tracing_disabled(True)
    with tempfile.TemporaryDirectory() as folder:
        await ask(Path(folder) / "chats.db", "Read the first parts.")
        await ask(Path(folder) / "chats.db", "Read the others.")


if __name__ == "__main__":
    asyncio.run(main())
