"""The games of the proof, in a house that is made here: no Java, no model."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from bench.proof.games.chat_text import (
    CALL_BEGINS,
    WrittenCall,
    prompt_text,
    read_call,
    render_chat,
    write_call,
)
from bench.proof.games.cooking import (
    SLIP,
    ScriptedPlayer,
    StepOutcome,
    read_recipe,
    read_sight,
)
from bench.proof.games.episodes import Arm, Episode, EpisodeOutcome, demonstrate
from bench.proof.games.table import make_rows, print_table, read_games

RECIPE = """Gather all following ingredients and follow the directions to prepare this tasty meal.

Ingredients:
  carrot
  salt

Directions:
  slice the carrot
  fry the carrot
  prepare meal
"""
CLUTTER = "In one part of the room you see a desk, that has nothing on it. There is also a sofa. " * 3
ROOMS = ("kitchen", "corridor", "bedroom", "attic", "pantry", "backyard")


class MadeHouse:
    """A row of rooms from south to north, with a door before the last. It speaks as the real game does."""

    task = "You are hungry! Check the cookbook in the kitchen."

    def __init__(self) -> None:
        self.at = 0
        self.bag: set[str] = set()
        self.is_open = {"fridge": False, "door": False}
        self.done: list[str] = []
        self.score = 0.0

    def act(self, action: str) -> StepOutcome:
        text = self._answer(action)
        won = text.startswith("You eat")
        self.score = 1.0 if won else min(len(self.bag) / 3, 0.9)
        return StepOutcome(text=text, score=self.score, won=won, lost=False)

    def _answer(self, action: str) -> str:  # noqa: PLR0911 - one for each kind of action
        here = ROOMS[self.at]
        verb, _, rest = action.partition(" ")
        if action == "look around":
            return self._look()
        if verb == "move" and self._leads(rest):
            self.at += 1 if rest == "north" else -1
            return self._look()
        if action == "open door to north" and self.at == len(ROOMS) - 2:
            self.is_open["door"] = True
            return f"You open the wood door, revealing the {ROOMS[-1]}."
        if here == "kitchen" and action == "read cookbook":
            return RECIPE
        if here == "kitchen" and action == "open fridge":
            self.is_open["fridge"] = True
            return "You open the fridge. The fridge contains a knife."
        if verb == "take" and rest in self._things():
            self.bag.add(rest)
            return f"You take the {rest}."
        if action in ("slice carrot", "cook carrot in stove") and here == "kitchen" and "carrot" in self.bag:
            self.done.append(action)
            return "Done."
        if action == "prepare meal" and len(self.done) == 2 and "salt" in self.bag:
            self.done.append(action)
            return "Adding the meal to your inventory."
        if action == "eat meal" and "prepare meal" in self.done:
            return "You eat the meal. It is delicious."
        return "Unknown action: I'm not sure what you mean."

    def _leads(self, side: str) -> bool:
        if side == "south":
            return self.at > 0
        before_door = self.at == len(ROOMS) - 2 and not self.is_open["door"]
        return side == "north" and self.at < len(ROOMS) - 1 and not before_door

    def _things(self) -> set[str]:
        lying = {"kitchen": {"knife"}, "attic": {"salt", "sugar"}, "backyard": {"carrot"}}
        return lying.get(ROOMS[self.at], set()) - self.bag

    def _look(self) -> str:
        text = f"You are in the {ROOMS[self.at]}. {CLUTTER}"
        if ROOMS[self.at] == "kitchen" and not self.is_open["fridge"]:
            text += "You also see a fridge that is closed. "
        if things := self._things():
            listed = ", and ".join(f"a {name}" for name in sorted(things))
            text += f"There is also a shelf that has {listed} on it. "
        if self.at > 0:
            text += f"\nTo the South you see the {ROOMS[self.at - 1]}. "
        if self.at == len(ROOMS) - 2:
            behind = f"Through an open wood door, to the North you see the {ROOMS[-1]}."
            return text + (behind if self.is_open["door"] else "To the North you see a closed wood door.")
        if self.at < len(ROOMS) - 1:
            text += f"To the North you see the {ROOMS[self.at + 1]}."
        return text


class MadeMachine:
    """Starts made houses."""

    def start(self, _seed: int, _fold: str) -> MadeHouse:
        return MadeHouse()


def visit(
    policy: str, window: int, *, houses: int = 2, slips: Random | None = None
) -> tuple[Episode, list[Any]]:
    machine: Any = MadeMachine()
    episode = Episode(machine, list(range(houses)), fold="test", arm=Arm(policy=policy, window=window))
    return episode, list(demonstrate(episode, slips=slips))


def test_a_room_and_a_recipe_are_read_as_the_game_writes_them() -> None:
    sight = read_sight(
        "You are in the corridor. There is also a shoe cabinet that is closed.\nTo the North you see a "
        "closed wood door. Through an open patio door, to the South you see the backyard. To the East "
        "you see the kitchen."
    )
    assert sight is not None
    assert sight.room == "corridor"
    assert [(each.side, each.leads_to) for each in sight.exits] == [
        ("north", ""),
        ("south", "backyard"),
        ("east", "kitchen"),
    ]
    recipe = read_recipe(RECIPE)
    assert recipe is not None
    assert recipe.ingredients == ("carrot", "salt")
    assert recipe.directions == (("slice", "carrot"), ("fry", "carrot"))
    assert recipe.core in RECIPE
    assert recipe.core.endswith("slice the carrot")
    assert read_sight("You take the salt.") is None
    assert read_recipe("You take the salt.") is None


def test_the_scripted_player_wins_by_what_he_has_seen() -> None:
    house, player = MadeHouse(), ScriptedPlayer()
    actions = []
    while (action := player.next_action()) is not None:
        actions.append(action)
        outcome = house.act(action)
        assert not outcome.text.startswith("Unknown"), action
        player.take_answer(outcome.text)
    assert outcome.won
    assert "take sugar" not in actions
    assert actions.count("read cookbook") == 1


def test_he_walks_back_to_the_book_if_the_recipe_is_out_of_sight_and_goes_on_where_he_was() -> None:
    episode, _ = visit("sliding", 1_000)
    assert all(house.won for house in episode.houses)
    whole, _ = visit("none", 1_000)
    assert episode.houses[0].steps > whole.houses[0].steps
    reads = [
        message for message in episode.messages if "read cookbook" in json.dumps(message.get("tool_calls"))
    ]
    assert len(reads) > 2


def test_with_recall_he_reads_it_where_he_is() -> None:
    episode, _ = visit("lamina+recall", 1_800)
    assert all(house.won for house in episode.houses)
    assert sum(house.recalls for house in episode.houses) > 0
    recalled = [
        episode.messages[at + 1]["content"]
        for at, message in enumerate(episode.messages)
        if message.get("tool_calls") and message["tool_calls"][0]["function"]["name"] == "recall"
    ]
    assert all("slice the carrot" in text for text in recalled)
    without, _ = visit("lamina", 1_800)
    assert sum(house.recalls for house in without.houses) == 0


@pytest.mark.parametrize("policy", ["none", "sliding", "drop_oldest", "lamina", "lamina+recall"])
def test_every_call_is_shown_once_as_it_was_chosen(policy: str) -> None:
    episode, shown = visit(policy, 1_800)
    calls = [message for message in episode.messages if message.get("tool_calls")]
    chosen = [each.messages[at] for each in shown for at in each.chosen]
    assert chosen == calls
    if policy == "none":
        assert len(shown) == 1  # nothing was cut: one request teaches everything


def test_slips_are_made_and_not_taught() -> None:
    episode, shown = visit("none", 1_000, houses=1, slips=Random(3))  # noqa: S311 - a game
    taught = [each.messages[at] for each in shown for at in each.chosen]
    calls = [message for message in episode.messages if message.get("tool_calls")]
    assert len(taught) < len(calls)
    assert SLIP not in json.dumps(taught)
    assert episode.houses[0].won


def test_a_call_is_written_and_read_in_the_words_of_the_model() -> None:
    call = WrittenCall("recall", {"key": "fold-1", "find": "Directions:"})
    assert read_call(write_call(*call)) == call
    assert read_call("nonsense</tool_call>").arguments == {"action": "nonsense"}
    assert read_call('act", "arguments": ["a"]}').name == "act"
    episode, _ = visit("lamina+recall", 1_800, houses=1)
    spans = render_chat(episode.messages, episode.arm.tools)
    written = [span for span in spans if span.call >= 0]
    assert len(written) == sum(bool(message.get("tool_calls")) for message in episode.messages)
    text = prompt_text(episode.messages, episode.arm.tools)
    assert text.endswith(CALL_BEGINS)
    assert text.count("<tool_response>") == len(written)


def test_the_table_pairs_games_and_prices_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "games.jsonl"
    lines = []
    for policy in ("none", "sliding", "lamina+recall"):
        for seed in range(3):
            episode, _ = visit(policy, 1_800, houses=1)
            houses = (
                msgspec.structs.replace(episode.houses[0], seed=seed, won=policy == "none" or seed > 0),
            )
            outcome = EpisodeOutcome(
                policy=policy,
                window=1_800,
                houses=houses,
                finished=True,
                computed=100,
                sent=1_000,
                messages=episode.messages,
            )
            lines.append(msgspec.json.encode(outcome).decode())
    path.write_text("\n".join(lines) + "\n")
    full, *others = make_rows(read_games(path))
    assert (full.policy, full.games, full.cost, full.won.mean) == ("none", 3, 1.0, 1.0)
    for row in others:
        assert row.won.mean == pytest.approx(2 / 3)
        assert row.ahead.mean == pytest.approx(-1 / 3)
        assert 0 < row.cost < 3
    print_table(path)
    assert "| sliding, 1,800 | 66.7 % " in capsys.readouterr().out
