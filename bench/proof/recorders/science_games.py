"""Plays ScienceWorld's gold paths: `science_games.py OUT.jsonl [VARIATIONS]` (needs `scienceworld` and Java).

After each move to another room the player looks around, as agents do. Runs in an environment of its own: it
imports nothing of lamina. A game that its gold path does not win is left out, and counted.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from scienceworld import ScienceWorldEnv  # type: ignore[import-not-found]  # in its own environment

LEAST_STEPS = 20
LEFT_OUT = frozenset(("mendelian-genetics-unknown-plant",))
"""Its gold paths take minutes to find."""

MOVES = ("go ", "teleport ", "open door")
RULES = "You act in a world of science. Call act with one action at a time, in the words of the game."
TOOL = {
    "type": "function",
    "function": {
        "name": "act",
        "description": "Takes one action and returns what is seen.",
        "parameters": {
            "type": "object",
            "properties": {"action": {"type": "string"}},
            "required": ["action"],
        },
    },
}


def main() -> None:
    out = Path(sys.argv[1])
    variations = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    world = ScienceWorldEnv("", envStepLimit=1000)
    games, lost = 0, 0
    with out.open("w", encoding="utf-8") as file:
        for name in world.get_task_names():
            if name in LEFT_OUT:
                continue
            for variation in range(min(variations, world.get_max_variations(name))):
                messages, won = play(world, name, variation)
                if len(messages) < 2 * LEAST_STEPS:
                    continue
                lost += not won
                if won:
                    row = {
                        "id": f"{name}-{variation}",
                        "sort": "things",
                        "messages": messages,
                        "tools": [TOOL],
                    }
                    file.write(json.dumps(row) + "\n")
                    games += 1
                print(f"\r{games} games", end="", file=sys.stderr, flush=True)
    print(f"\n{games} games in {out}, {lost} that the gold path did not win")


def play(world: ScienceWorldEnv, name: str, variation: int) -> tuple[list[dict[str, Any]], bool]:
    world.load(name, variation, "", generateGoldPath=True)
    observation, info = world.reset()
    gold = world.get_gold_action_sequence()
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": RULES},
        {"role": "user", "content": f"{info['taskDesc']}\n\n{observation}"},
    ]
    won = False
    for action in gold:
        observation, _, _, info = world.step(action)
        add_step(messages, action, observation)
        won = won or info["score"] >= 100
        if action.startswith(MOVES) and not won:
            add_step(messages, "look around", info["look"])
    return messages, won


def add_step(messages: list[dict[str, Any]], action: str, observation: str) -> None:
    number = len(messages)
    function = {"name": "act", "arguments": json.dumps({"action": action})}
    tool_call = {"id": f"call_{number}", "type": "function", "function": function}
    messages.append({"role": "assistant", "content": None, "tool_calls": [tool_call]})
    messages.append({"role": "tool", "tool_call_id": f"call_{number}", "content": observation})


if __name__ == "__main__":
    main()
