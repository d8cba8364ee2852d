"""A chat of 2,000 short turns: the share of the room that its digests take, and whether cuts stay rare.

    python bench/short_turns.py [--turns 2000] [--cuts 32] [--windows 8000,32000,200000]
                                [--languages english,chinese,thai] [--json FILE]
    python bench/short_turns.py --quick [--json FILE]

Digests have to stay within a quarter of the room however long the chat is. The median of turns between cuts
in the last quarter of the cuts has to be at least 0.9 times that in the second quarter. A turn is a question
with names of its own and an answer. Answers are longer in a larger window, so that each chat is cut often
enough to compare its quarters.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `bench`, however this is started

from bench.arguments import split_numbers
from bench.samples import QUICK_HELP
from lamina.core.build import build
from lamina.core.digests import SHARE, is_digest
from lamina.core.memo import BuildMemo
from lamina.core.values import Budget, Ledger, Segment
from lamina.models.counters import counter_for
from lamina.segments import assistant, system, user

WINDOWS = "8000,32000,200000"
COUNT_AS = "gpt-5.4"
CLOSING_LINE = 16
"""Tokens of the line that ends a digest. It is laid after the digests have got their share of the room."""

STEADY = 0.9
"""Turns between cuts in the last quarter, of those in the second: at least this share."""

CUTS = 32
"""About so many cuts in a chat, if each frees half of the room."""


FIRST = 1_000
"""The number of the first turn: all have four digits, so that all turns have about the same size."""


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """What a chat says in one language, with `{n}` for the number of the turn."""

    task: str
    question: str
    sentence: str


LANGUAGES = {
    "english": Words(
        task="Port the parsers, one after another.",
        question="Now mend parse_order_{n} for case {n}, and mind rule_{n}. Go on.",
        sentence="The parser of order_{n} reads line_{n}.txt and the total_{n} of it. ",
    ),
    "chinese": Words(
        task="请逐个移植这些解析器。",
        question="现在修复 parse_order_{n} 的第 {n} 种情况。注意规则 rule_{n}。然后继续。",
        sentence="订单 order_{n} 的解析器会读取 line_{n}.txt 以及其中的合计 total_{n}。",
    ),
    "thai": Words(
        task="ช่วยย้ายตัวแยกวิเคราะห์ทีละตัว",
        question="ตอนนี้แก้ parse_order_{n} สำหรับกรณีที่ {n} และระวังกฎ rule_{n} แล้วทำต่อ",
        sentence="ตัวแยกวิเคราะห์ของ order_{n} อ่าน line_{n}.txt และยอดรวม total_{n} ในนั้น ",
    ),
}


class ShortTurns(msgspec.Struct, frozen=True, kw_only=True):
    """One chat in one window. `digests` is the largest share of the room that digests took.

    `second` and `last` are the medians of turns between cuts, in the second and the last quarter of the cuts.
    """

    language: str
    window: int
    turns: int
    cuts: int
    digests: float
    second: float
    last: float

    @property
    def holds(self) -> bool:
        is_bounded = self.digests <= 1 / SHARE + CLOSING_LINE / self.window
        return is_bounded and self.last >= STEADY * self.second

    def line(self) -> str:
        verdict = "pass" if self.holds else "FAIL"
        return (
            f"{verdict}  {self.language:8} {self.window:7,} {self.turns:6,} turns {self.cuts:4} cuts  "
            f"digests {self.digests:6.1%} of the room  turns between cuts {self.second:g} and {self.last:g}"
        )


def chat(words: Words, turns: int, window: int, cuts: int) -> list[Segment]:
    """A task, and so many turns that add up to half of the window for each of the cuts."""
    counter = counter_for(COUNT_AS)
    sentence_tokens = counter.count(words.sentence.format(n=FIRST))
    turn_tokens = window * cuts // 2 // turns
    sentences = max(turn_tokens // sentence_tokens - 1, 1)
    log = [system("Be brief."), user(words.task)]
    for number in range(FIRST, FIRST + turns):
        log.append(assistant(words.sentence.format(n=number) * sentences))
        log.append(user(words.question.format(n=number)))
    return log


def measure(language: str, window: int, turns: int, cuts: int) -> ShortTurns:
    """Build every request of a chat, each with the ledger of the one before."""
    log = chat(LANGUAGES[language], turns, window, cuts)
    counter = counter_for(COUNT_AS)
    budget = Budget(window=window, reserve=0)
    ledger = Ledger()
    memo = BuildMemo()
    largest = 0
    cut_turns = []
    for turn in range(turns):
        envelope = build(log[: 2 * turn + 4], budget=budget, counter=counter, ledger=ledger, memo=memo)
        ledger = envelope.ledger
        if envelope.cut is None:
            continue
        cut_turns.append(turn)
        largest = max(largest, sum(entry.tokens for entry in envelope.sent if is_digest(entry)))
    spacing = [later - earlier for earlier, later in pairwise(cut_turns)]
    quarter = len(spacing) // 4
    if not quarter:
        raise SystemExit(f"{len(cut_turns)} cuts at {window:,} are too few; give more --turns")
    return ShortTurns(
        language=language,
        window=window,
        turns=turns,
        cuts=len(cut_turns),
        digests=largest / window,
        second=median(spacing[quarter : 2 * quarter]),
        last=median(spacing[-quarter:]),
    )


def main() -> int:
    options = _options()
    rows = []
    for window in options.windows:
        for language in options.languages:
            row = measure(language, window, options.turns, options.cuts)
            print(row.line(), flush=True)
            rows.append(row)
    if options.json:
        options.json.write_bytes(msgspec.json.encode(rows))
    return int(not all(row.holds for row in rows))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=2_000)
    parser.add_argument("--cuts", type=int, default=CUTS, help="about so many cuts in a chat")
    parser.add_argument("--windows", type=split_numbers, default=split_numbers(WINDOWS), metavar="N,...")
    parser.add_argument("--languages", type=_names, default=list(LANGUAGES), metavar="L,...")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--quick", action="store_true", help=QUICK_HELP)
    options = parser.parse_args()
    if options.quick:
        options.turns = 100
        options.cuts = 12
        options.windows = [4_000]
        options.languages = ["english"]
    return options


def _names(text: str) -> Sequence[str]:
    names = text.split(",")
    for name in names:
        if name not in LANGUAGES:
            raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(LANGUAGES)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
