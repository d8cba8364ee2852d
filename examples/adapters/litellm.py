"""LiteLLM in a small window: a loop of 40 tool calls. The caller keeps its whole history.

    pip install 'lamina-context[litellm]'
    python examples/adapters/litellm.py

The provider is scripted, so no key is needed. Put yours in its place: `acompletion(model="openai/gpt-5", …)`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

if sys.path[0] == str(Path(__file__).resolve().parent):
    del sys.path[0]  # this folder has files with the names of frameworks
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # it would ask the network for prices

import litellm

from lamina.adapters.litellm import LaminaLogger

PARAMETERS = {"type": "object", "properties": {"number": {"type": "integer"}}}
TOOLS = [{"type": "function", "function": {"name": "read_part", "parameters": PARAMETERS}}]


class ScriptedProvider(litellm.CustomLLM):
    """Reads 40 parts, and then answers."""

    steps = 0

    async def acompletion(self, *_: Any, **arguments: Any) -> Any:
        self.steps += 1
        message: dict[str, Any] = {"role": "assistant", "content": None}
        if self.steps > 40:
            message["content"] = f"Read. The last request had {len(arguments['messages'])} messages."
        else:
            function = {"name": "read_part", "arguments": f'{{"number": {self.steps}}}'}
            message["tool_calls"] = [{"id": f"call_{self.steps}", "type": "function", "function": function}]
        return litellm.ModelResponse(choices=[{"message": message, "finish_reason": "stop"}])


async def main() -> None:
    litellm.custom_provider_map = [{"provider": "scripted", "custom_handler": ScriptedProvider()}]
    litellm.callbacks = [LaminaLogger(budget=16_000)]
    history: list[Any] = [{"role": "user", "content": "Read every part of the manual."}]
    while True:
        answer = await litellm.acompletion(model="scripted/manual", messages=list(history), tools=TOOLS)
        message = answer.choices[0].message
        history.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            break
        call = message.tool_calls[0]
        text = f"{call.function.arguments}: press the key, wait for the lamp, release the key.\n" * 40
        history.append({"role": "tool", "tool_call_id": call.id, "content": text})
    print(message.content)
    print(f"{len(history)} messages are kept")


if __name__ == "__main__":
    asyncio.run(main())
