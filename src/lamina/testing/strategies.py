"""Hypothesis strategies for logs: what all property tests of lamina speak about.

Logs here are hostile on purpose: calls without results, results without calls, late and doubled ones,
empty messages, equal content, tags in content, pins, things that cannot be recovered. A `Story` is a log
that grows, or is edited and rewound by its client, with the budget and the options under which it is built
each time. Each piece of a log is one number: drawing is cheap, and a failing log shrinks by dropping pieces.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec

from lamina.core.bound_thinking import Binding
from lamina.core.build import build
from lamina.core.history_window import LastN
from lamina.core.layout import Cap, Layout
from lamina.core.options import DEFAULT_OPTIONS, Options
from lamina.core.repair import Repairs
from lamina.core.values import Budget, Part, Segment, Text, ToolCall, ToolResult
from lamina.core.wording import TAGGED
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
)
from lamina.testing._properties import strategies as st

__all__ = ["Story", "edited_logs", "logs", "stories"]

WORDS = "alpha beta gamma delta parser cache token window retry config module value".split()
SPICE = (
    "",
    "",
    "",
    "",
    "</file_context>",
    "<digest>",
    "<\\/note_context>",
    "</content>",
    "[trimmed]",
    "# heading\n",
    "Error: x",
    "\u202egnp",
    "漢字",
    "🙂",
    "\x00",
    '"',
    "src/a.py",
    "</user_message>",
    "<SYSTEM_CONTEXT>",
)
PATHS = ("docs/spec.md", "src/app.py", "notes/a & b.md")
TIMES = ("noon", "Friday, 09:00", "Friday, 09:07")
RULES = (
    "From now on answer in French.",
    "Never touch src/a.py.",
    "请始终用中文回答。",
    "От этого не отступай: всегда пиши тесты.",
)
"""What holds from then on, in several languages."""

SKILL = "Run the tests of the room, and say what they print.\n" * 40
"""Longer than a message of the user that a digest quotes word for word."""

OFTEN = ("same content " * 60, "# Title\n\n" + "line of text\n" * 80)


Log = tuple[Segment, ...]


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation as it is at each request, the budget, and the options that it is built with.

    Each log continues the one before it, unless the client edited, cut off or rewound its history.
    """

    logs: tuple[Log, ...]
    budget: Budget
    options: Options = DEFAULT_OPTIONS

    @property
    def log(self) -> Log:
        """The conversation at its last request."""
        return self.logs[-1]

    def __repr__(self) -> str:
        sizes = ", ".join(str(len(log)) for log in self.logs)
        return f"Story(logs of {sizes} segments, {self.budget}, binding={self.options.binding!r})"


def text(dice: Random, most: int = 300) -> str:
    """A few words up to `most`, now and then with something that looks like a tag."""
    size = dice.choice((dice.randint(1, 8), dice.randint(1, 40), dice.randint(most // 4, most)))
    body = " ".join(dice.choices(WORDS, k=size))
    return f"{dice.randint(0, 99)} {dice.choice(SPICE)}{body}"


def opening(dice: Random) -> list[Segment]:
    """What a user puts in: a question, perhaps with attachments, some of them again, and with the time."""
    segments = [_attachment(dice) for _ in range(dice.choice((0, 0, 1, 2)))]
    segments.append(_question(dice))
    if dice.random() < 0.3:
        segments.insert(dice.choice((0, len(segments))), clock(dice.choice(TIMES)))
    return segments


def _question(dice: Random) -> Segment:
    """What the user asks. One in ten is pinned, one in ten a rule, and one in twenty has a skill with it."""
    words = text(dice, 40)
    chance = dice.random()
    if 0.1 <= chance < 0.15:
        words = f"{words}\n{SKILL}"
    elif 0.2 <= chance < 0.3:
        words = f"{words}\n{RULES[int(chance * 1_000) % len(RULES)]}"
    return user(words, pinned=chance < 0.1)


def _attachment(dice: Random) -> Segment:
    content = dice.choice((*OFTEN, text(dice)))
    make = dice.choice((file, note))
    if dice.random() < 0.8:
        return make(dice.choice(PATHS), content)
    return selected_text(text(dice, 60))


def step(dice: Random, *, thinks: bool) -> list[Segment]:
    """One assistant message with its calls and results, well formed."""
    serial = dice.randint(0, 10**6)
    message = []
    if thinks and dice.random() < 0.6:
        message.append(thinking(text(dice, 20), signature=f"s{serial}"))
    message.append(assistant(text(dice, 40), joins=bool(message)))
    names = [dice.choice(("read_file", "bash", "write_file")) for _ in range(dice.choice((0, 1, 1, 1, 2, 3)))]
    ids = [f"c{serial}_{i}" for i in range(len(names))]
    calls = [_call(dice, name, call_id) for name, call_id in zip(names, ids, strict=True)]
    results = [
        result(text(dice), id=call_id, name=name, error=dice.random() < 0.1)
        for name, call_id in zip(names, ids, strict=True)
    ]
    return [*message, *calls, *results]


def _call(dice: Random, name: str, call_id: str) -> Segment:
    content = {"content": text(dice, 200)} if name == "write_file" else {}
    return call(name, {"path": f"src/a{dice.randint(0, 4)}.py"} | content, id=call_id)


def odd(dice: Random) -> list[Segment]:
    """Segments as no tidy client sends them: calls without results, empty messages, loose thinking."""
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
        lambda: [system("Reminder: be brief.")],
        lambda: [system(text(dice, 30))],
        lambda: [thinking("loose thought")],
    )
    return dice.choice(shapes)()


def piece(number: int, *, oddly: bool, thinks: bool) -> list[Segment]:
    """The piece of a log that a number stands for."""
    dice = Random(number)  # noqa: S311 - a seeded generator is the point
    roll = dice.random()
    if oddly and roll < 0.2:
        return odd(dice)
    if roll < 0.4:
        return opening(dice)
    return step(dice, thinks=thinks)


def logs(*, oddly: bool = True, thinks: bool = False) -> st.SearchStrategy[tuple[Segment, ...]]:
    """Whole logs: a system text and a question, then openings, steps and oddities in any order."""

    def make_log(numbers: list[int]) -> tuple[Segment, ...]:
        dice = Random(numbers[0])  # noqa: S311
        log = [system(text(dice, 30)), *opening(dice)]
        for number in numbers[1:]:
            log += piece(number, oddly=oddly, thinks=thinks)
        return tuple(log)

    return st.lists(st.integers(0, 4_000), min_size=4, max_size=10).map(make_log)


LAYOUTS: dict[str, Options] = {
    "in place": Options(),
    "hoisted": Options(layout=Layout(library="hoisted")),
    "tagged": Options(wording=TAGGED),
    "tagged and merged": Options(wording=TAGGED, repairs=Repairs(merge=True, duplicates="last")),
    "capped": Options(layout=Layout(attachments=Cap(tokens=120))),
    "context after": Options(layout=Layout(context="after")),
    "as logged": Options(layout=Layout(context="logged")),
}
"""Ways to lay out a request, each of which keeps every law."""


WINDOWS = (None, None, None, LastN(1, 0), LastN(3), LastN(4, 1, digest=0))
"""How much of its history a request has: mostly all of it."""


def without_one(log: Log, at: int, dice: Random) -> Log:  # noqa: ARG001 - all edits take the same arguments
    """The client deletes a segment."""
    return log[:at] + log[at + 1 :]


def without_some(log: Log, at: int, dice: Random) -> Log:
    """The client deletes a few segments in a row."""
    return log[:at] + log[at + dice.randint(2, 6) :]


def without_front(log: Log, at: int, dice: Random) -> Log:
    """The client drops its oldest messages; its system text and its first message may stay."""
    keep = dice.choice((0, 1, 2))
    return log[:keep] + log[max(at, keep) :]


def rewound(log: Log, at: int, dice: Random) -> Log:  # noqa: ARG001
    """The client goes back to an earlier place."""
    return log[: max(at, 2)]


def reworded(log: Log, at: int, dice: Random) -> Log:
    """The client changes what a segment says: it shortens a result, redacts a message, edits a call."""
    changed: list[Part] = []
    for part in log[at].parts:
        match part:
            case ToolResult():
                changed.append(msgspec.structs.replace(part, content=(Text("[cleared]"),)))
            case ToolCall():
                changed.append(msgspec.structs.replace(part, arguments='{"path": "another.py"}'))
            case Text():
                changed.append(Text(f"edited {dice.randint(0, 99)}"))
            case _:
                changed.append(part)
    return (*log[:at], msgspec.structs.replace(log[at], parts=tuple(changed)), *log[at + 1 :])


def inserted(log: Log, at: int, dice: Random) -> Log:
    """The client puts something into the middle."""
    new = dice.choice((user(text(dice, 20)), system("Reminder: be brief."), assistant(text(dice, 20))))
    return (*log[:at], new, *log[at:])


EDITS = (without_one, without_some, without_front, rewound, reworded, inserted)
"""What clients do to their history."""


def edited_logs(log: Log, numbers: list[int]) -> tuple[Log, ...]:
    """A log as it is at each request: it grows to its end, and an odd number edits what is there."""
    versions: list[Log] = []
    done = log[:2]
    rest = log[2:]
    for number in numbers:
        dice = Random(number)  # noqa: S311
        if number % 2 and len(done) > 2:
            done = dice.choice(EDITS)(done, dice.randrange(1, len(done)), dice)
        size = dice.randint(1, 8)
        done += rest[:size]
        rest = rest[size:]
        versions.append(done)
    versions.append(done + rest)
    return tuple(versions)


@st.composite
def stories(
    draw: st.DrawFn, *, oddly: bool = True, edited: bool = True, all_of_history: bool = False
) -> Story:
    """A conversation that is built several times, mostly in a window that is too small for it.

    Some only grow, as those of tidy clients; in others (`edited`) the client changes its history meanwhile.
    Some send only the last messages of their history, unless `all_of_history` is asked for.
    """
    binding: Binding = draw(st.sampled_from(("none", "none", "strict", "drop")))
    log = draw(logs(oddly=oddly, thinks=binding != "none"))
    if edited and draw(st.booleans()):
        versions = edited_logs(log, draw(st.lists(st.integers(0, 4_000), min_size=2, max_size=6)))
    else:
        count = draw(st.integers(2, 4))
        stops = {max(2, len(log) * (number + 1) // count) for number in range(count)}
        versions = tuple(log[:stop] for stop in sorted(stops))
    share = draw(st.sampled_from((0.4, 0.5, 0.6, 0.7, 0.8, 5)))
    room = 300 + int(share * build(log).tokens)
    budget = Budget(window=room, reserve=0, keep_last=draw(st.integers(0, 3)))
    layout = LAYOUTS[draw(st.sampled_from(tuple(LAYOUTS)))]
    window = None if all_of_history else draw(st.sampled_from(WINDOWS))
    options = msgspec.structs.replace(layout, binding=binding, window=window)
    return Story(logs=versions, budget=budget, options=options)
