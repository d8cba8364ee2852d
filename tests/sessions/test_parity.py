"""A session that is reloaded at any moment, here or in another process, builds the same bytes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamina.core import Layout
from lamina.core.values import Budget
from lamina.dialects import DIALECTS
from lamina.errors import InvalidRequest
from lamina.segments import file, memory, selected_text
from lamina.sessions import Session
from lamina.stores import MemoryStore, Store, open_sqlite
from tests.sessions.talking import answer, awaited, opened, setup_of, wire

pytestmark = pytest.mark.filterwarnings("ignore::lamina.stores.sqlite.WalResetRisk")

ROOT = Path(__file__).resolve().parents[2]
TEXTS = ("alpha beta gamma " * 70, "# One\n\nfirst\n\n# Two\n\n" + "line of text\n" * 90, "short")

Requests = list[tuple[bool, str]]


async def move(session: Session, number: int, dialect: str) -> None:
    """One thing that happens in a conversation; a number stands for it."""
    kind, size = number % 8, number // 8 % 3
    if kind == 0 and session.turns > 1:
        await session.rewind(-1 - size % min(session.turns, 2))
    elif kind == 1 and session.turns and not session.pending:
        await session.regenerate()
    elif kind == 2:
        await session.add(memory(f"remember {number}"))
    elif session.pending or kind == 3:
        await _spoken(session, number, dialect)
    else:
        attach = [file(f"docs/{number % 3}.md", TEXTS[size])] if number % 2 else []
        attach += [selected_text(f"chosen {number}")] if number % 5 == 0 else []
        await session.ask(f"question {number} {TEXTS[size][: number % 40]}", attach=attach)


async def _spoken(session: Session, number: int, dialect: str) -> None:
    name = f"{number}_{len(session.log)}"
    call = f"call{name}" if number % 3 == 0 and dialect != "text" else ""
    size = (await session.build()).tokens
    recorded = await session.record(answer(dialect, f"answer {name}", call=call, read=size + number))
    if recorded.calls:
        await session.results({each.id: TEXTS[number % 3] for each in recorded.calls})


async def requested(session: Session) -> tuple[bool, str]:
    """The request, and whether the model is to speak; where nothing was said or asked, there is none."""
    if not session.dialogue():
        return session.pending, ""
    try:
        return session.pending, wire(await session.request())
    except InvalidRequest as refused:
        assert not session.pending
        return False, str(refused)


async def played(store: Store, numbers: list[int], dialect: str, *, restarts: bool, **more: Any) -> Requests:
    """The request after each move, and if the model is to speak; from one session, or a new one each time."""
    requests: Requests = []
    setup = setup_of(dialect, system="Be brief.", **more)
    async with opened(store, **setup) as session:
        for number in numbers:
            await move(session, number, dialect)
            if restarts:
                break
            requests.append(await requested(session))
    for done, _ in enumerate(numbers if restarts else (), 1):
        async with opened(store, system="Be brief.") as session:
            requests.append(await requested(session))
        async with opened(store, system="Be brief.") as session:
            for number in numbers[done : done + 1]:
                await move(session, number, dialect)
    return requests


@given(
    dialect=st.sampled_from(list(DIALECTS)),
    numbers=st.lists(st.integers(0, 200), min_size=3, max_size=12),
    library=st.sampled_from(("in_place", "hoisted")),
)
@settings(max_examples=30)
@awaited
async def test_a_session_reloaded_at_any_turn_builds_the_same_bytes(
    dialect: str, numbers: list[int], library: Any
) -> None:
    layout = Layout(library=library)
    whole = await played(MemoryStore(), numbers, dialect, restarts=False, layout=layout)
    assert await played(MemoryStore(), numbers, dialect, restarts=True, layout=layout) == whole
    for request in (request for pending, request in whole if pending):
        assert DIALECTS[dialect].wire.check(json.loads(request)) == []


LONG = [number for turn in range(14) for number in (101 + 8 * turn, 3 + 24 * turn, 19 + 8 * turn)]


QUICK_DIALECTS = ("anthropic", "openai_chat")
"""One whose counts are corrected by what the server counted, and one whose are exact."""


@pytest.mark.parametrize(
    "dialect",
    [
        pytest.param(dialect, marks=() if dialect in QUICK_DIALECTS else pytest.mark.thorough)
        for dialect in DIALECTS
    ],
)
@awaited
async def test_that_holds_across_cuts(dialect: str) -> None:
    store = MemoryStore()
    budget = Budget(window=1_200 if dialect == "text" else 3_000, reserve=0)
    whole = await played(store, LONG, dialect, restarts=False, budget=budget)
    async with opened(store) as session:
        assert [cut for cut in session.ledger.cuts if cut.lowered]
        assert session.ledger.calibration or dialect not in ("anthropic", "gemini")
    assert await played(MemoryStore(), LONG, dialect, restarts=True, budget=budget) == whole


@awaited
async def test_cache_markers_are_planned_and_are_the_same_after_a_reload() -> None:
    store, model = MemoryStore(), "claude-sonnet-4-5"
    budget, seen = Budget(window=9_000, reserve=0, keep_last=1), set()
    async with opened(store, model=model, budget=budget, system="Be brief. " * 800) as session:
        for number in range(24):
            envelope = await session.ask(f"question {number}", attach=[file("a.md", f"{number} " * 150)])
            request = wire(await session.request())
            seen.add((request.count("cache_control"), envelope.cut is not None))
            async with opened(store) as other:
                assert wire(await other.request()) == request
            await session.record("answer " * 150)
    assert {cut for _, cut in seen} == {True, False}
    assert max(count for count, _ in seen) > 2
    async with opened(store, breakpoints="none") as session:
        assert "cache_control" not in wire(await session.request())


SCRIPT = """
import sys, anyio
from tests.sessions.test_parity import build_request
print(anyio.run(build_request, sys.argv[1]))
"""


async def build_request(path: str) -> str:
    async with open_sqlite(path) as store, opened(store) as session:
        return wire(await session.request())


def test_another_process_builds_the_same_bytes(tmp_path: Path) -> None:
    async def here() -> str:
        setup = setup_of("anthropic")
        async with open_sqlite(tmp_path / "chats.db") as store, opened(store, **setup) as session:
            for number in LONG:
                await move(session, number, "anthropic")
            return wire(await session.request())

    expected = anyio.run(here)
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "chats.db")]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == expected
