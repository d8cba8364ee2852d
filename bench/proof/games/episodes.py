"""One visit to three houses under one policy: a conversation of about 150 steps with a game in each house.

The player is asked to cook in a house, and when that is done or lost, in the next one. Before each step the
policy makes the request from the whole conversation, as it would for any agent. Under `lamina+recall` the
player has lamina's own tool, and its answers come from the log by the ledger, as everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import msgspec

from bench.proof.follow import FULL, WITH_RECALL, find_by_short_name, setting_of_task
from bench.proof.games.chat_text import LONGEST_ACTION, WrittenCall
from bench.proof.games.cooking import MOST_STEPS, CookingGame, GameMachine, ScriptedPlayer
from bench.proof.recalling import Offers, find_keys
from bench.proof.tasks import Message, Task
from lamina.core.values import Ledger
from lamina.errors import NotFound
from lamina.fitting.recalls import RECALL
from lamina.replay.policies.lamina_policies import LaminaRun

RULES = "You play games of cooking in text. Call act with one action at a time, in the words of the game."
RULES_WITH_RECALL = f"{RULES} Call recall to read again what was left out above."
HOUSES = 3
SLIPS = 0.04
"""How often the scripted player does something wrong, when a model learns from him."""

FIND = "Directions:"
"""What the scripted player searches for when the recipe was left out."""

ACT = {
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
RECALL_TOOL = {
    "type": "function",
    "function": {"name": RECALL.name, "description": RECALL.description, "parameters": RECALL.schema},
}


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """A policy in a window. The window says nothing about the full context."""

    policy: str
    window: int

    @property
    def has_recall(self) -> bool:
        return self.policy.endswith(WITH_RECALL)

    @property
    def tools(self) -> list[dict[str, Any]]:
        return [ACT, RECALL_TOOL] if self.has_recall else [ACT]

    @property
    def name(self) -> str:
        return self.policy if self.policy == FULL else f"{self.policy} {self.window}"


class HouseOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How one game went. `score` is the game's own, from 0 to 1; `misread` are actions it did not know."""

    seed: int
    won: bool
    score: float
    steps: int
    recalls: int
    misread: int


class EpisodeOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """A finished visit: its games and its whole conversation, from which every request can be made again."""

    policy: str
    window: int
    houses: tuple[HouseOutcome, ...]
    finished: bool
    computed: int
    sent: int
    messages: list[Message]


class Episode:
    """One visit in progress. Ask for the request, then hand over the call that was chosen."""

    def __init__(self, machine: GameMachine, seeds: Sequence[int], *, fold: str, arm: Arm) -> None:
        self.arm = arm
        self.messages: list[Message] = [
            {"role": "system", "content": RULES_WITH_RECALL if arm.has_recall else RULES}
        ]
        self.houses: list[HouseOutcome] = []
        self.player = ScriptedPlayer()
        self._machine = machine
        self._fold = fold
        self._seeds = list(seeds)
        task = Task(name="", messages=[], needs=[], tools=arm.tools)
        setting = setting_of_task(task, arm.window, "anthropic")
        self._run = find_by_short_name(arm.policy.removesuffix(WITH_RECALL)).start(setting)
        self._game: CookingGame | None = None
        self._enter_house()

    @property
    def is_over(self) -> bool:
        return self._game is None

    def request(self) -> list[Message]:
        """The messages that the policy sends now."""
        request = {"model": "player", "messages": self.messages, "tools": self.arm.tools}
        return self._run(request, 0.0).messages

    def act(self, call: WrittenCall) -> str:
        """Carry out a call. Returns what came of it."""
        if call.name == RECALL.name and self.arm.has_recall:
            self._recalls += 1
            answer = self.recall(call.arguments)
        else:
            answer = self._play(str(call.arguments.get("action", ""))[:LONGEST_ACTION])
        self._add_step(call, answer)
        self._steps += 1
        if self._done or self._steps >= MOST_STEPS:
            self._leave_house()
        return answer

    def recall(self, arguments: dict[str, Any]) -> str:
        """What lamina's tool answers."""
        key, find = str(arguments.get("key", "")), str(arguments.get("find", ""))
        try:
            return Offers(self.messages, self._ledger).answer(key, find)
        except NotFound:
            return f"nothing has the key {key!r}"

    def _play(self, action: str) -> str:
        assert self._game is not None  # noqa: S101 - for the type checker
        outcome = self._game.act(action)
        self._misread += outcome.text.startswith("Unknown action")
        self._won = outcome.won
        self._done = outcome.won or outcome.lost
        return outcome.text

    @property
    def _ledger(self) -> Ledger:
        return self._run.ledger if isinstance(self._run, LaminaRun) else Ledger()

    def _add_step(self, call: WrittenCall, answer: str) -> None:
        call_id = f"call_{len(self.messages)}"
        function = {"name": call.name, "arguments": json.dumps(call.arguments)}
        tool_call = {"id": call_id, "type": "function", "function": function}
        self.messages.append({"role": "assistant", "content": None, "tool_calls": [tool_call]})
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": answer})

    def _enter_house(self) -> None:
        number = len(self.houses) + 1
        self._game = self._machine.start(self._seeds[number - 1], self._fold)
        self._steps = self._recalls = self._misread = 0
        self._won = self._done = False
        self.player = ScriptedPlayer()
        text = f"House {number} of {len(self._seeds)}. {self._game.task}"
        self.messages.append({"role": "user", "content": text})

    def _leave_house(self) -> None:
        assert self._game is not None  # noqa: S101 - for the type checker
        self.houses.append(
            HouseOutcome(
                seed=self._seeds[len(self.houses)],
                won=self._won,
                score=1.0 if self._won else self._game.score,
                steps=self._steps,
                recalls=self._recalls,
                misread=self._misread,
            )
        )
        self._game = None
        if len(self.houses) < len(self._seeds):
            self._enter_house()


class ShownRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request, and the numbers of its messages whose calls the player chose while it stood so."""

    messages: list[Message]
    chosen: tuple[int, ...]


def demonstrate(episode: Episode, *, slips: Random | None = None) -> Iterator[ShownRequest]:
    """Let the scripted player play. Yields the requests to learn from.

    Between two cuts each request continues the last one, so the last of them teaches every call since the
    cut; that is what makes long contexts cheap to learn from. With `slips` he does something wrong now and
    then. Nobody learns that, only what he does about it.
    """
    shown: list[Message] = []
    chosen: list[int] = []
    while not episode.is_over:
        sent = list(episode.request())  # the full context is the growing list itself
        if shown and sent[: len(shown) - 1] != shown[:-1]:  # the last has the answer now
            yield ShownRequest(messages=shown, chosen=tuple(chosen))
            chosen = []
        call = choose_call(episode, sent)
        if call is None:
            break
        slip = None
        if slips is not None and slips.random() < SLIPS:
            slip = episode.player.slip(slips)
            call = WrittenCall("act", {"action": slip})
        before = len(episode.messages)
        player = episode.player
        answer = episode.act(call)
        if call.name != RECALL.name:
            player.take_answer(answer)
        if slip is None:
            chosen.append(len(sent))
        shown = [*sent, *episode.messages[before : before + 2]]
    if chosen:
        yield ShownRequest(messages=shown, chosen=tuple(chosen))


def choose_call(episode: Episode, sent: list[Message]) -> WrittenCall | None:
    """What the scripted player calls next, after he has looked at the request."""
    player = episode.player
    in_sight = True
    if player.recipe is not None and player.needs_recipe:
        core = _on_one_line(player.recipe.core)
        in_sight = any(core in _on_one_line(message.get("content") or "") for message in sent)
    if not in_sight and episode.arm.has_recall:
        call = _find_recall(episode, sent, player.recipe.core if player.recipe else "")
        if call is not None:
            return call
    action = player.next_action(recipe_in_sight=in_sight)
    return WrittenCall("act", {"action": action}) if action is not None else None


def _on_one_line(text: str) -> str:
    """A text without line breaks: a digest quotes a result on one line."""
    return " ".join(text.split())


def _find_recall(episode: Episode, sent: list[Message], core: str) -> WrittenCall | None:
    """The recall that brings the recipe back, if a key in the request does."""
    for key in find_keys(sent):
        arguments = {"key": key, "find": FIND}
        if core in episode.recall(arguments):
            return WrittenCall(RECALL.name, arguments)
    return None
