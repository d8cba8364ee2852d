"""The account of a run: how often each class of behaviour and content was played, and what was found in it.

Every class that there is has a row, so that one which was never played is seen. An account is plain JSON and
two of them add up, so a run can be divided among processes, stopped, and taken up again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from tests.fuzzing.moves import GROUPS
from tests.fuzzing.play import Played
from tests.fuzzing.traits import CONTENTS

KEPT = 3
"""Examples of each sort of violation that are kept."""

ALL = "all"


class Row(msgspec.Struct, kw_only=True):
    """One class. Refusals are counted by turn, violations by conversation and sort."""

    conversations: int = 0
    turns: int = 0
    cuts: int = 0
    folds: int = 0
    refusals: dict[str, int] = {}
    violations: dict[str, int] = {}

    def count(self, played: Played, sorts: Iterable[str]) -> None:
        self.conversations += 1
        self.turns += played.turns
        self.cuts += played.cuts
        self.folds += played.folds
        self.refusals = _sum(self.refusals, Counter(played.refusals))
        self.violations = _sum(self.violations, Counter(sorts))

    def join(self, other: Row) -> None:
        self.conversations += other.conversations
        self.turns += other.turns
        self.cuts += other.cuts
        self.folds += other.folds
        self.refusals = _sum(self.refusals, other.refusals)
        self.violations = _sum(self.violations, other.violations)


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """A violation that was found: the seed of its conversation, and what was wrong."""

    seed: int
    turn: int
    detail: str


class Account(msgspec.Struct, kw_only=True):
    """All classes, and the first examples of each sort of violation. `seeds` are those that were played."""

    rows: dict[str, Row] = {}
    examples: dict[str, list[Example]] = {}
    seeds: set[int] = set()
    seconds: float = 0

    def add(self, played: Played, seconds: float = 0) -> None:
        self.seeds.add(played.script.seed)
        self.seconds += seconds
        sorts = sorted({violation.sort for violation in played.violations})
        for name in classes_of(played):
            self.rows.setdefault(name, Row()).count(played, sorts)
        for violation in played.violations:
            self._keep(
                violation.sort, Example(seed=played.script.seed, turn=violation.turn, detail=violation.detail)
            )

    def _keep(self, sort: str, example: Example) -> None:
        kept = self.examples.setdefault(sort, [])
        if all(one.seed != example.seed for one in kept):
            kept.append(example)
            kept.sort(key=lambda one: one.seed)
            del kept[KEPT:]

    @property
    def whole(self) -> Row:
        return self.rows.get(ALL, Row())

    def dump(self) -> bytes:
        return msgspec.json.encode(self, order="deterministic")

    @staticmethod
    def load(data: bytes) -> Account:
        return msgspec.json.decode(data, type=Account)


def classes_of(played: Played) -> Iterator[str]:
    """The classes that a conversation belongs to."""
    yield ALL
    yield from sorted({f"does {move}" for move in played.moves})
    yield from sorted(f"has {content}" for content in played.contents)


def every_class() -> Iterator[str]:
    """All classes that there are, in the order of the table."""
    yield ALL
    for group in GROUPS.values():
        yield from (f"does {move}" for move in group)
    yield from (f"has {content}" for content in CONTENTS)


def table(account: Account) -> str:
    """The account as a table in Markdown; classes that were never played have zeros."""
    lines = [
        "| class | conversations | turns | cuts | folds | refused | violations, by conversation |",
        "|---|--:|--:|--:|--:|---|---|",
    ]
    names = dict.fromkeys([*every_class(), *account.rows])
    for name in names:
        row = account.rows.get(name, Row())
        cells = (row.conversations, row.turns, row.cuts, row.folds)
        numbers = " | ".join(f"{cell:,}" for cell in cells)
        lines.append(f"| {name} | {numbers} | {_counts(row.refusals)} | {_counts(row.violations)} |")
    return "\n".join(lines)


def violations_table(account: Account) -> str:
    """Each sort of violation: conversations with it, and how many that is of a thousand."""
    whole = account.whole
    lines = ["| violation | conversations | of 1,000 | first seeds |", "|---|--:|--:|---|"]
    for sort, count in most_common(whole.violations):
        share = 1000 * count / max(whole.conversations, 1)
        seeds = ", ".join(str(example.seed) for example in account.examples.get(sort, ()))
        lines.append(f"| {sort} | {count:,} | {share:.1f} | {seeds} |")
    return "\n".join(lines)


def never_played(account: Account) -> list[str]:
    return [name for name in every_class() if name not in account.rows]


def most_common(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in most_common(counts)) or "0"


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in sorted({*one, *other})}


def merged(accounts: Iterable[Account]) -> Account:
    """The sum of accounts of different seeds."""
    total = Account()
    for account in accounts:
        total.seeds |= account.seeds
        total.seconds += account.seconds
        for name, row in account.rows.items():
            total.rows.setdefault(name, Row()).join(row)
        for sort, examples in account.examples.items():
            for example in examples:
                total._keep(sort, example)  # noqa: SLF001 - its own method, of another account
    return total
