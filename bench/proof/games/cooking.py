"""CookingWorld of TextWorldExpress, and a scripted player who has seen everything that he needs.

The player reads the recipe in the kitchen, walks through the house, room after room, until every ingredient
is in his bag, walks back, cuts and cooks as the recipe says, and eats. He uses only what the game has shown
him; his memory is perfect. The book stays in the kitchen, so what it said has to be remembered.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec

GAME = "cookingworld"
SETTINGS = "numLocations=11, numIngredients=5, numDistractorItems=10, includeDoors=1, limitInventorySize=0"
MOST_STEPS = 100
"""Actions after which a game is lost. The scripted player needs about 50, if he never walks back."""

EXIT = re.compile(r"(?:Through an open [^,.]+, to|To) the (North|South|East|West) you see ([^.]+)\.")
ROOM = re.compile(r"You are in the ([^.]+)\.")
CUTS = ("chop", "slice", "dice")
COOKS = {"fry": "stove", "roast": "oven", "grill": "barbeque"}
CLOSED = re.compile(r"\ban? ([a-z -]+?) that is closed")
"""Something to look into: `a kitchen cupboard that is closed`. Closed doors are worded otherwise."""

BACK = {"north": "south", "south": "north", "east": "west", "west": "east"}
GRILL_ROOM = "backyard"
KITCHEN = "kitchen"
READ = "read cookbook"
SLIP = "take everything"
MOST_WALKS = 6
"""How often the scripted player walks back to the book in one game."""


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """A way out of a room. `leads_to` is "" behind a closed door."""

    side: str
    leads_to: str


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """A room as its description shows it."""

    room: str
    exits: tuple[Exit, ...]
    text: str


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """What the book says. `directions` are pairs of a verb and an ingredient, without `prepare meal`.

    `core` is the text from the ingredients to the first direction: where it stands, the recipe is in sight.
    """

    ingredients: tuple[str, ...]
    directions: tuple[tuple[str, str], ...]
    core: str


class StepOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What the game answered. `score` goes from 0 to 1."""

    text: str
    score: float
    won: bool
    lost: bool


class GameMachine:
    """One Java process that holds many games at a time."""

    def __init__(self) -> None:
        from py4j.java_gateway import (  # type: ignore[import-not-found]  # noqa: PLC0415 - only with the games
            GatewayParameters,
            JavaGateway,
            launch_gateway,
        )
        from textworld_express.constants import (  # type: ignore[import-not-found]  # noqa: PLC0415 - as above
            JAR_PATH,
        )

        port, self._process = launch_gateway(
            classpath=JAR_PATH,
            die_on_exit=True,
            cwd=str(Path(JAR_PATH).parent),
            javaopts=["-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
            return_proc=True,
        )
        self._java = JavaGateway(
            gateway_parameters=GatewayParameters(auto_field=True, port=port), java_process=self._process
        )

    def start(self, seed: int, fold: str) -> CookingGame:
        """A new game. The seeds of a fold are its own: those of `test` are in no game of `train`."""
        server = self._java.jvm.textworldexpress.runtime.PythonInterface()
        problem = server.load(GAME, SETTINGS)
        if problem:
            raise RuntimeError(problem)
        server.generateNewGameJSON(seed, fold, False)  # noqa: FBT003 - Java has no names for arguments
        return CookingGame(server)

    def seeds(self, fold: str) -> list[int]:
        """The seeds of `train`, `dev` or `test`."""
        server = self._java.jvm.textworldexpress.runtime.PythonInterface()
        server.load(GAME, SETTINGS)
        by_fold = {"train": server.getSeedsTrain, "dev": server.getSeedsDev, "test": server.getSeedsTest}
        return [int(seed) for seed in by_fold[fold]()]

    def close(self) -> None:
        self._java.shutdown()
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        self._process.wait(timeout=10)


class CookingGame:
    """One game."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.task = str(server.getTaskDescription())
        self.score = 0.0

    def act(self, action: str) -> StepOutcome:
        """Take one action."""
        facts = json.loads(self._server.stepJSON(action))
        self.score = max(self.score, float(facts["score"]))
        return StepOutcome(
            text=str(facts["observation"]).strip(),
            score=float(facts["score"]),
            won=bool(facts["tasksuccess"]),
            lost=bool(facts["taskfailure"]),
        )


def read_sight(text: str) -> Sight | None:
    """The room that a text describes; None if it describes none."""
    room = ROOM.search(text)
    if room is None:
        return None
    exits = []
    for side, seen in EXIT.findall(text):
        leads_to = "" if seen.startswith("a closed") else seen.removeprefix("the ").strip()
        exits.append(Exit(side=side.lower(), leads_to=leads_to))
    return Sight(room=room[1], exits=tuple(exits), text=text)


def read_recipe(text: str) -> Recipe | None:
    """The recipe in a text; None if there is none."""
    parts = re.search(r"Ingredients:\n(.*?)\n\s*Directions:\n(.*)", text, re.DOTALL)
    if parts is None:
        return None
    ingredients = tuple(line.strip() for line in parts[1].splitlines() if line.strip())
    directions = []
    for line in parts[2].splitlines():
        words = re.fullmatch(r"\s*(\w+) the (.+?)\s*", line)
        if words:
            directions.append((words[1], words[2]))
    core = re.search(r"Ingredients:\n.*?Directions:\n[^\n]*", text, re.DOTALL)
    core_text = core[0] if core is not None else text
    return Recipe(ingredients=ingredients, directions=tuple(directions), core=core_text)


class ScriptedPlayer:
    """Plays by what was shown. Ask for the next action, then tell it what the game answered.

    Between reading the recipe and preparing the meal it wants to see it. If the recipe is out of sight, it
    walks back to the book, reads it again, and returns to where it was.
    """

    def __init__(self) -> None:
        self.recipe: Recipe | None = None
        self.needs_recipe = False
        self.walks_back = 0
        self.bag: list[str] = []
        self.rooms: dict[str, Sight] = {}
        self.here = ""
        self.path: list[str] = []
        self._answer = ""
        self._plan = self._play()
        self._planned = next(self._plan, None)
        self._walk: list[str] = []

    def next_action(self, *, recipe_in_sight: bool = True) -> str | None:
        """The next action; None when there is nothing left to do."""
        if self._walk:
            return self._walk[0]
        if self.needs_recipe and not recipe_in_sight and self.walks_back < MOST_WALKS:
            self.walks_back += 1
            there = self._way(self.here, KITCHEN)
            self._walk = [*there, READ, *self._way(KITCHEN, self.here)]
            return self._walk[0]
        return self._planned

    def slip(self, chance: Random) -> str:
        """Something wrong to do instead: a step into a room that was seen, or words that mean nothing."""
        known = [each.side for each in self._exits_here() if each.leads_to in self.rooms]
        if self._walk or not known or chance.random() < 0.3:
            self._walk.insert(0, SLIP)
            return SLIP
        side = chance.choice(known)
        self._walk = [f"move {side}", f"move {BACK[side]}"]
        return self._walk[0]

    def _exits_here(self) -> tuple[Exit, ...]:
        sight = self.rooms.get(self.here)
        return sight.exits if sight is not None else ()

    def take_answer(self, text: str) -> None:
        """What the game answered to the last action."""
        sight = read_sight(text)
        if sight is not None:
            self.rooms[sight.room] = sight
            self.here = sight.room
        if self._walk:
            self._walk.pop(0)
            return
        self._answer = text
        self._planned = next(self._plan, None)

    def _play(self) -> Iterator[str]:
        yield "look around"
        yield from self._look_for(lambda: self.here == KITCHEN)
        yield READ
        self.recipe = read_recipe(self._answer)
        if self.recipe is None:
            return
        self.needs_recipe = True
        yield from self._search_room()
        if any(verb in CUTS for verb, _ in self.recipe.directions):
            yield "take knife"
        yield from self._look_for(lambda: not self.missing)
        yield from self._go_to(KITCHEN)
        yield from self._cook()

    @property
    def missing(self) -> list[str]:
        """The ingredients that are not in the bag yet, in the order of the recipe."""
        if self.recipe is None:
            return []
        return [name for name in self.recipe.ingredients if name not in self.bag]

    def _look_for(self, is_done: Any) -> Iterator[str]:
        """Walk on into rooms that were not seen, and back where there is none, until it is done."""
        while not is_done():
            following = self._unseen_exit()
            if following is None:
                if not self.path:
                    return
                yield f"move {BACK[self.path.pop()]}"
                continue
            if not following.leads_to:
                yield f"open door to {following.side}"
                self._learn_door(following.side)
                if self._exit_to(following.side).leads_to in self.rooms:
                    continue
            self.path.append(following.side)
            yield f"move {following.side}"
            if self.recipe is not None:
                yield from self._search_room()

    def _unseen_exit(self) -> Exit | None:
        for each in self.rooms[self.here].exits:
            if not each.leads_to or each.leads_to not in self.rooms:
                return each
        return None

    def _learn_door(self, side: str) -> None:
        """The door is open now: the answer names the room behind it."""
        behind = re.search(r"revealing the ([^.]+)\.", self._answer)
        if behind is None:
            return
        sight = self.rooms[self.here]
        exits = [Exit(side=side, leads_to=behind[1]) if each.side == side else each for each in sight.exits]
        self.rooms[self.here] = msgspec.structs.replace(sight, exits=tuple(exits))

    def _exit_to(self, side: str) -> Exit:
        return next(each for each in self.rooms[self.here].exits if each.side == side)

    def _search_room(self) -> Iterator[str]:
        """Look into everything that is closed here, and take what the recipe asks for."""
        sight = self.rooms[self.here]
        found = sight.text
        for thing in CLOSED.findall(sight.text):
            yield f"open {thing}"
            found = f"{found} {self._answer}"
        for name in list(self.missing):
            if re.search(rf"\b{re.escape(name)}\b", found):
                yield f"take {name}"
                if self._answer.startswith("You take"):
                    self.bag.append(name)

    def _go_to(self, room: str) -> Iterator[str]:
        yield from self._way(self.here, room)

    def _way(self, origin: str, room: str) -> list[str]:
        """The shortest way through rooms that were seen, as actions."""
        ways: dict[str, list[str]] = {origin: []}
        queue = [origin]
        for at in queue:
            for each in self.rooms[at].exits:
                if each.leads_to in self.rooms and each.leads_to not in ways:
                    ways[each.leads_to] = [*ways[at], f"move {each.side}"]
                    queue.append(each.leads_to)
        return ways.get(room, [])

    def _cook(self) -> Iterator[str]:
        assert self.recipe is not None  # noqa: S101 - for the type checker
        cuts = [(verb, name) for verb, name in self.recipe.directions if verb in CUTS]
        for verb, name in cuts:
            yield f"{verb} {name}"
        for verb, name in self.recipe.directions:
            if verb in ("fry", "roast"):
                yield f"cook {name} in {COOKS[verb]}"
        grills = [name for verb, name in self.recipe.directions if verb == "grill"]
        if grills:
            if GRILL_ROOM not in self.rooms:
                yield from self._look_for(lambda: self.here == GRILL_ROOM)
            yield from self._go_to(GRILL_ROOM)
            for name in grills:
                yield f"cook {name} in {COOKS['grill']}"
            yield from self._go_to(KITCHEN)
        self.needs_recipe = False
        yield "prepare meal"
        yield "eat meal"
