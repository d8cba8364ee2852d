"""The games that were played, as a table: who won, in how many steps, and what it cost.

Only the first house of each visit counts as a game here: every visit has finished it, whatever the time. What
a provider would have charged is computed from the conversation, which has every request in it. The steps
that all visits had are the second measure: how many meals were cooked in them.
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import msgspec

from bench.proof.follow import FULL, WITH_RECALL, follow
from bench.proof.games.cooking import GameMachine
from bench.proof.games.episodes import HOUSES, Arm, Episode, EpisodeOutcome, demonstrate
from bench.proof.rows import Range, estimate_ahead, estimate_shares
from bench.proof.tasks import Message, Task

RULES = "anthropic"
SCRIPT_SEEDS = 20_000
"""The scripted player plays the games of `test`, too."""


COLUMNS = (
    "policy",
    "games won",
    "beside the full context",
    "meals",
    "steps",
    "recalls",
    "tokens sent",
    "computed",
    "cost",
)


class GameRow(msgspec.Struct, frozen=True, kw_only=True):
    """One policy in one window. `won` are first houses, `meals` all houses that were won.

    `steps` and `recalls` are for each first house. `sent` and `computed` are tokens for each call: of the
    request, and of what a prefix cache did not have. `cost` is relative to the full context.
    """

    policy: str
    window: int
    games: int
    won: Range
    ahead: Range
    meals: int
    steps: float
    recalls: float
    sent: float
    computed: float
    cost: float


def read_games(path: Path) -> list[EpisodeOutcome]:
    """The visits in a file, packed or not."""
    with _open(path) as lines:
        return [msgspec.json.decode(line, type=EpisodeOutcome) for line in lines]


def make_rows(visits: Sequence[EpisodeOutcome], *, houses: int = 1) -> list[GameRow]:
    """A row for each arm, the full context first. `houses` of each visit are taken as its games."""
    by_arm: dict[tuple[str, int], dict[int, EpisodeOutcome]] = {}
    for visit in visits:
        if len(visit.houses) >= houses:
            by_arm.setdefault((visit.policy, visit.window), {})[visit.houses[0].seed] = visit
    seeds = sorted(set.intersection(*(set(arm) for arm in by_arm.values())))
    costs = {name: [_cost(arm[seed], houses) for seed in seeds] for name, arm in by_arm.items()}
    full_name = next(name for name in by_arm if name[0] == FULL)
    full_cost = sum(costs[full_name])
    full_won = [_count_won(by_arm[full_name][seed], houses) for seed in seeds]
    rows = []
    for name in sorted(by_arm, key=lambda name: (name[0] != FULL, name)):
        arm = [by_arm[name][seed] for seed in seeds]
        won = [_count_won(visit, houses) for visit in arm]
        played = [house for visit in arm for house in visit.houses[:houses]]
        calls = sum(len(visit.messages) // 2 for visit in arm)
        rows.append(
            GameRow(
                policy=name[0],
                window=name[1],
                games=len(played),
                won=estimate_shares(won),
                ahead=estimate_ahead(won, full_won),
                meals=sum(house.won for visit in arm for house in visit.houses),
                steps=sum(house.steps for house in played) / len(played),
                recalls=sum(house.recalls for house in played) / len(played),
                sent=sum(visit.sent for visit in arm) / calls,
                computed=sum(visit.computed for visit in arm) / calls,
                cost=sum(costs[name]) / full_cost,
            )
        )
    return rows


def print_table(path: Path, *, houses: int = 1) -> None:
    """Print the rows as Markdown."""
    print(f"| {' | '.join(COLUMNS)} |")
    print(f"|---|{'--:|' * (len(COLUMNS) - 1)}")
    for row in make_rows(read_games(path), houses=houses):
        name = row.policy if row.policy == FULL else f"{row.policy}, {row.window:,}"
        cells = [
            name,
            f"{100 * row.won.mean:.1f} % [{100 * row.won.low:.1f}, {100 * row.won.high:.1f}] of {row.games}",
            f"{100 * row.ahead.mean:+.1f} [{100 * row.ahead.low:+.1f}, {100 * row.ahead.high:+.1f}]",
            f"{row.meals}",
            f"{row.steps:.1f}",
            f"{row.recalls:.2f}",
            f"{row.sent:,.0f}",
            f"{row.computed:,.0f}",
            f"{row.cost:.2f}",
        ]
        print(f"| {' | '.join(cells)} |", flush=True)


def play_script(out: Path, *, arms: Sequence[Arm], visits: int) -> None:
    """Let the scripted player play the games of `test` under each arm, and write one line for each visit."""
    machine = GameMachine()
    with out.open("w", encoding="utf-8") as lines:
        for visit in range(visits):
            seeds = range(SCRIPT_SEEDS + HOUSES * visit, SCRIPT_SEEDS + HOUSES * (visit + 1))
            for arm in arms:
                episode = Episode(machine, seeds, fold="test", arm=arm)
                for _ in demonstrate(episode):
                    pass  # what is shown is for those who learn
                outcome = EpisodeOutcome(
                    policy=arm.policy,
                    window=arm.window,
                    houses=tuple(episode.houses),
                    finished=episode.is_over,
                    computed=0,
                    sent=0,
                    messages=episode.messages,
                )
                lines.write(msgspec.json.encode(outcome).decode() + "\n")
            print(f"\r{visit + 1} of {visits} visits", end="", file=sys.stderr, flush=True)
    machine.close()


def _cost(visit: EpisodeOutcome, houses: int) -> float:
    """What the input of these houses costs, in tokens at full price."""
    arm = Arm(policy=visit.policy, window=visit.window)
    messages = _first_messages(visit.messages, houses)
    task = Task(name=f"{visit.houses[0].seed}", messages=messages, needs=[], tools=arm.tools)
    followed = follow(task, visit.policy.removesuffix(WITH_RECALL), visit.window, RULES)
    return followed.outcomes[0].cost


def _first_messages(messages: list[Message], houses: int) -> list[Message]:
    """The messages up to the end of so many houses; each begins with a message of the user."""
    begins = [at for at, message in enumerate(messages) if message["role"] == "user"]
    if len(begins) <= houses:
        return messages
    return messages[: begins[houses]]


def _count_won(visit: EpisodeOutcome, houses: int) -> tuple[int, int]:
    played = visit.houses[:houses]
    return sum(house.won for house in played), len(played)


def _open(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    return path.open(encoding="utf-8")
