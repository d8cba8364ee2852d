"""Hypothesis strategies for logs: what all property tests of lamina speak about.

Logs here are hostile on purpose: calls without results, results without calls, late and doubled ones,
empty messages, equal content, tags in content, pins, things that cannot be recovered. A `Story` is a log
that grows, with the budget under which it is built at each step. Each piece of a log is one number, so
drawing is cheap and a failing log shrinks by dropping pieces.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec
from hypothesis import strategies as st

from lamina.core.bind import Binding
from lamina.core.build import build
from lamina.core.values import Budget, Segment
from lamina.segments import (
    assistant,
    call,
    clock,
    file,
    image,
    memory,
    note,
    result,
    selected_text,
    system,
    thinking,
    user,
)  # fmt: skip

WORDS = "alpha beta gamma delta parser cache token window retry config module value".split()
SPICE = (
    "", "", "", "", "</file_context>", "<digest>", "<\\/note_context>", "</content>", "[trimmed]",
    "# heading\n", "Error: x", "\u202egnp", "漢字", "🙂", "\x00", '"', "src/a.py", "</user_message>",
    "<SYSTEM_CONTEXT>",
)  # fmt: skip
PATHS = ("docs/spec.md", "src/app.py", "notes/a & b.md")
OFTEN = ("same content " * 60, "# Title\n\n" + "line of text\n" * 80)


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """A log, the lengths at which it is built, the budget, and whether thinking is bound."""

    log: tuple[Segment, ...]
    stops: tuple[int, ...]
    budget: Budget
    binding: Binding = "none"


def text(dice: Random, most: int = 300) -> str:
    """A few words up to `most`, now and then with something that looks like a tag."""
    size = dice.choice((dice.randint(1, 8), dice.randint(1, 40), dice.randint(most // 4, most)))
    body = " ".join(dice.choices(WORDS, k=size))
    return f"{dice.randint(0, 99)} {dice.choice(SPICE)}{body}"


def opening(dice: Random) -> list[Segment]:
    """What a user puts in: a question, perhaps with attachments, some of them again."""
    return [*(_attachment(dice) for _ in range(dice.choice((0, 0, 1, 2)))), _question(dice)]


def _question(dice: Random) -> Segment:
    return user(text(dice, 40), pinned=dice.random() < 0.1)


def _attachment(dice: Random) -> Segment:
    content = dice.choice((*OFTEN, text(dice)))
    make = dice.choice((file, note))
    return make(dice.choice(PATHS), content) if dice.random() < 0.8 else selected_text(text(dice, 60))


def step(dice: Random, *, thinks: bool) -> list[Segment]:
    """One assistant message with its calls and results, well formed."""
    serial = dice.randint(0, 10**6)
    first = [thinking(text(dice, 20), signature=f"s{serial}")] if thinks and dice.random() < 0.6 else []
    spoken = [assistant(text(dice, 40), joins=bool(first))]
    names = [dice.choice(("read_file", "bash", "write_file")) for _ in range(dice.choice((0, 1, 1, 1, 2, 3)))]
    ids = [f"c{serial}_{i}" for i in range(len(names))]
    calls = [_call(dice, name, id_) for name, id_ in zip(names, ids, strict=True)]
    answers = [
        result(text(dice), id=i, name=n, error=dice.random() < 0.1) for n, i in zip(names, ids, strict=True)
    ]
    return [*first, *spoken, *calls, *answers]


def _call(dice: Random, name: str, id_: str) -> Segment:
    content = {"content": text(dice, 200)} if name == "write_file" else {}
    return call(name, {"path": f"src/a{dice.randint(0, 4)}.py"} | content, id=id_)


def odd(dice: Random) -> list[Segment]:
    """What no tidy log has."""
    id_ = dice.choice(("x1", "x2", "call", "a/b", ""))
    shapes: tuple[Callable[[], list[Segment]], ...] = (
        lambda: [call("bash", '{"cmd": "ls"}', id=id_)],
        lambda: [result(text(dice), id=id_, name="bash")],
        lambda: [call("bash", "not json", id=id_), result(text(dice), id=id_), result("again", id=id_)],
        lambda: [user("   ")],
        lambda: [assistant("")],
        lambda: [user("see"), image(data="aGVsbG8=" * 40, media_type="image/png")],
        lambda: [memory(text(dice, 20))],
        lambda: [clock("noon")],
        lambda: [thinking("loose thought")],
    )
    return dice.choice(shapes)()


def piece(number: int, *, oddly: bool, thinks: bool) -> list[Segment]:
    """The piece of a log that a number stands for."""
    dice = Random(number)  # noqa: S311 - a seeded generator is the point
    roll = dice.random()
    if oddly and roll < 0.2:
        return odd(dice)
    return opening(dice) if roll < 0.4 else step(dice, thinks=thinks)


def logs(*, oddly: bool = True, thinks: bool = False) -> st.SearchStrategy[tuple[Segment, ...]]:
    """Whole logs: a system text and a question, then openings, steps and oddities in any order."""

    def made(numbers: list[int]) -> tuple[Segment, ...]:
        dice = Random(numbers[0])  # noqa: S311
        begun = [system(text(dice, 30)), *opening(dice)]
        return tuple(begun + [s for n in numbers[1:] for s in piece(n, oddly=oddly, thinks=thinks)])

    return st.lists(st.integers(0, 4_000), min_size=4, max_size=10).map(made)


@st.composite
def stories(draw: st.DrawFn, *, oddly: bool = True) -> Story:
    """A log built several times while it grows, mostly in a window that is too small for it."""
    binding: Binding = draw(st.sampled_from(("none", "none", "strict", "drop")))
    log = draw(logs(oddly=oddly, thinks=binding != "none"))
    count = draw(st.integers(2, 4))
    stops = tuple(sorted({max(2, len(log) * (i + 1) // count) for i in range(count)}))
    share = draw(st.sampled_from((0.4, 0.5, 0.6, 0.7, 0.8, 5)))
    window = 300 + int(share * build(log).tokens)
    budget = Budget(window=window, reserve=0, keep_last=draw(st.integers(0, 3)))
    return Story(log=log, stops=stops, budget=budget, binding=binding)
