"""Random walks of a session: each request keeps every law, and opening it again changes none.

A walk is a list of numbers, each of which is one thing that happens: a turn with notes, some of them edited,
an answer, a call, a summary, a rewind. After each the laws are asked, and the conversation is opened again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Literal, NamedTuple

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamina.core import Cap, Layout, Move, OrderView, admit, audit, cut, library, text_of
from lamina.core.envelope import Envelope
from lamina.core.laws import Case
from lamina.core.orders import Batch, goes_last
from lamina.core.values import Budget, Form, Layer
from lamina.dialects import DIALECTS
from lamina.errors import BudgetExceeded, LawBroken
from lamina.segments import clock, note, selected_text, summary
from lamina.sessions import LastN, Session
from lamina.stores import MemoryStore
from tests.sessions.talking import answer, opened, setup_of, wire

pytestmark = pytest.mark.hypothesis

USUAL = settings().max_examples
LISTED = re.compile(r"^- (.*)$", re.MULTILINE)


def newest_first(view: OrderView) -> Iterator[Batch]:
    """An order of a caller's own: what can be recovered by its handle, the newest first."""
    for position in reversed(view.free()):
        entry = view.entries[position]
        if not entry.segment.is_own and not goes_last(entry, view.kinds):
            yield (Move(position, Form.STUB, "newest first"),)


class Setting(NamedTuple):
    """What a walk is played with."""

    layout: Layout
    window: int
    history: LastN | None
    ordered: bool
    dialect: str

    def arguments(self) -> dict[str, Any]:
        given: dict[str, Any] = {"layout": self.layout, "budget": Budget(window=self.window, reserve=0)}
        if self.history is not None:
            given["history"] = self.history
        return setup_of(self.dialect, **given) | self.functions()

    def functions(self) -> dict[str, Any]:
        """What is no data, and is given anew by whoever opens the conversation again."""
        return {"order": newest_first} if self.ordered else {}


caps = st.none() | st.builds(
    Cap,
    tokens=st.sampled_from((80, 300, 600)),
    form=st.sampled_from((Form.OMITTED, Form.STUB, Form.COMPACT)),
)
layouts = st.builds(
    Layout,
    library=st.sampled_from(("in_place", "hoisted", "hoisted")),
    context=st.sampled_from(("before", "before", "after", "logged")),
    attachments=caps,
    prior_limit=st.sampled_from((5_000, 400)),
    results=st.sampled_from((None, "kept", "turn")),
)
histories = st.none() | st.builds(
    LastN, st.integers(1, 4), st.sampled_from((None, 0, 2)), st.sampled_from((None, 0, 800))
)
settings_of_walks = st.builds(
    Setting,
    layout=layouts,
    window=st.sampled_from((600, 900, 1_200, 2_000, 4_000, 20_000)),
    history=histories,
    ordered=st.booleans(),
    dialect=st.sampled_from(list(DIALECTS)),
)
walks = st.lists(st.integers(0, 100_000), min_size=4, max_size=24)


class Walk:
    """One conversation on its way. The notes are edited now and then."""

    def __init__(self, store: MemoryStore, session: Session, setting: Setting) -> None:
        self.store = store
        self.session = session
        self.setting = setting
        self.versions = dict.fromkeys(("a.md", "b.md", "c.md", "d.md"), 0)
        self.before: Envelope | None = None

    async def step(self, number: int) -> None:
        """One thing that happens."""
        dice = Random(number)  # noqa: S311 - a seeded generator is the point
        roll = dice.random()
        session = self.session
        if roll < 0.06 and session.turns > 1:
            await session.rewind(-1)
        elif roll < 0.1 and session.turns and not session.pending:
            await session.regenerate()
        elif roll < 0.15 and len(session.log) > 4 and not session.pending:
            covered = [segment.key for segment in session.log[1:4] if segment.key]
            await session.add(summary(f"summary {number}", covers=[*covered, "nothing"]))
        elif session.pending and roll < 0.9:
            await self.answer(dice, number)
        else:
            await self.ask(dice, number)

    async def ask(self, dice: Random, number: int) -> None:
        name = dice.choice(list(self.versions))
        self.versions[name] += dice.random() < 0.2
        attached: list[Any] = [self.write(dice, name) for name in self.versions if dice.random() < 0.35]
        if dice.random() < 0.1:
            attached.append(selected_text(f"chosen {number} " * 5))
        if dice.random() < 0.1:
            attached.append(clock("noon"))
        history: LastN | Literal["all"] | None = None
        if dice.random() < 0.1:
            history = dice.choice((LastN(2, 0), LastN(3), "all"))
            self.before = None  # a wider window sends again what a narrower one has taken out
        prompt = f"Question {number} about it " + "w " * dice.randint(0, 40)
        await self.session.ask(prompt, attach=attached, history=history)

    def write(self, dice: Random, name: str) -> Any:
        length = 40 if name == "a.md" else 120
        meta = {"override": True} if dice.random() < 0.05 else {}
        return note(name, f"# {name} v{self.versions[name]}\n\n" + "filler words here. " * length, meta=meta)

    async def answer(self, dice: Random, number: int) -> None:
        dialect = self.setting.dialect
        name = f"{number}_{len(self.session.log)}"
        call = f"call{name}" if dice.random() < 0.3 and dialect != "text" else ""
        size = self.session.envelope.tokens if self.session.envelope else 100
        said = f"Answer {name} " + "said " * dice.randint(1, 60)
        recorded = await self.session.record(answer(dialect, said, call=call, read=size))
        if recorded.calls:
            await self.session.results(
                {each.id: "found it. " * dice.randint(1, 200) for each in recorded.calls}
            )

    async def check(self) -> None:
        """Ask everything of the request as it is now."""
        session = self.session
        if not session.pending:
            return
        request = await session.request()
        envelope = session.envelope
        assert envelope is not None
        terms = session.terms
        audit(
            Case(
                log=session.log,
                envelope=envelope,
                before=self.before,
                counter=terms.counter,
                options=terms.options,
            )
        )
        self.before = envelope
        assert DIALECTS[self.setting.dialect].wire.check(json.loads(wire(request))) == []
        shelf = {entry.segment.key for entry in envelope.sent if entry.layer is Layer.LIBRARY}
        for entry in envelope.sent:
            said = text_of(entry.parts)
            if said.startswith("Context attached to this message:"):
                assert set(LISTED.findall(said)) <= shelf
        async with opened(self.store, **self.setting.functions()) as again:
            assert wire(await again.request()) == wire(request)
            assert again.ledger.cuts == session.ledger.cuts


async def walk(numbers: list[int], setting: Setting) -> None:
    store = MemoryStore()
    async with opened(store, **setting.arguments()) as session:
        one = Walk(store, session, setting)
        for number in numbers:
            try:
                await one.step(number)
                await one.check()
            except BudgetExceeded:
                return


HOISTED = Setting(Layout(library="hoisted"), 1_200, None, ordered=False, dialect="openai_chat")
IN_A_WINDOW = Setting(Layout(), 1_200, LastN(3, slack=0), ordered=False, dialect="openai_chat")


@settings(max_examples=max(USUAL // 2, 1))
@given(walks, settings_of_walks)
def test_every_request_of_a_walk_keeps_the_laws_and_is_the_same_after_opening(
    numbers: list[int], setting: Setting
) -> None:
    anyio.run(walk, numbers, setting)


@pytest.mark.parametrize(
    ("numbers", "layout", "window", "history", "dialect"),
    [
        # What the reminder of one question quotes, the next question says, before any answer.
        ([62777, 41, 0, 0, 62777], Layout(), 900, LastN(1), "bedrock_converse"),
        # The last answer is taken back, and what a reminder quotes stands in full again.
        ([205, 0, 761, 0, 0, 0, 464, 0, 58, 474, 58, 0, 474], HOISTED.layout, 1_200, None, "openai_chat"),
        # A cut of the library moves the full form past an older reference that was left out.
        ([32, 0, 292, 1347, 674], HOISTED.layout, 600, None, "openai_responses"),
        ([421, 0, 17658, 17660], HOISTED.layout, 900, None, "bedrock_converse"),
    ],
)
def test_these_walks_keep_the_laws(
    numbers: list[int], layout: Layout, window: int, history: LastN | None, dialect: str
) -> None:
    anyio.run(walk, numbers, Setting(layout, window, history, ordered=False, dialect=dialect))


@pytest.mark.thorough
@settings(max_examples=1_000)
@given(walks, settings_of_walks)
def test_that_holds_of_a_thousand_walks(numbers: list[int], setting: Setting) -> None:
    anyio.run(walk, numbers, setting)


def a_library_that_reads_no_reference(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(library, "is_reference_line", lambda _line: False)


def a_list_of_what_was_lowered(patch: pytest.MonkeyPatch) -> None:
    for module in (admit, cut):
        patch.setattr(module, "find_lost_references", lambda *_args: [])


def a_cut_at_each_opening(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cut, "is_sent_again", lambda *_args: False)


@pytest.mark.parametrize(
    ("bug", "setting"),
    [
        (a_library_that_reads_no_reference, HOISTED),
        (a_list_of_what_was_lowered, HOISTED),
        (a_cut_at_each_opening, IN_A_WINDOW),
    ],
)
def test_the_walks_kill_the_bug(
    bug: Callable[[pytest.MonkeyPatch], None], setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)

    def search() -> None:
        for seed in range(60):
            dice = Random(seed)  # noqa: S311
            anyio.run(walk, [dice.randrange(100_000) for _ in range(24)], setting)

    with pytest.raises((AssertionError, LawBroken)):
        search()
