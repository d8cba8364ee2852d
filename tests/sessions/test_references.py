"""What a session refers to stands in full above, in the same request, and is the newest of its name."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from lamina.core import Layout, cut, references
from lamina.core.entries import identify_attachment
from lamina.core.history_window import LastN
from lamina.core.values import Budget, Segment
from lamina.dialects.json_values import Json
from lamina.segments import note
from lamina.sessions import Session
from lamina.stores import MemoryStore
from tests.sessions.talking import opened

pytestmark = pytest.mark.hypothesis

NAMES = ("gate.md", "plan.md")
SENTENCES = 30
REFERENCE = re.compile(r'<reference to="([^"]+)" recall="(\w+)">')
"""A reference that has a handle. One without stands for a text that is hardly longer."""

Turn = tuple[int, int, int]
"""Which note is attached (none after the last), which version of it, and how much is said."""

POLICIES: tuple[dict[str, Any], ...] = (
    {"budget": Budget(window=1_500, reserve=0)},
    {"budget": Budget(window=2_400, reserve=0), "recall": "tool"},
    {"history": LastN(2, slack=0)},
    {"history": LastN(4), "budget": Budget(window=1_800, reserve=0)},
    {"layout": Layout(library="hoisted"), "budget": Budget(window=1_800, reserve=0)},
)

turns = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 1), st.sampled_from((5, 60))), min_size=6, max_size=14
)


def attached(turn: Turn) -> list[Segment]:
    name, version, _ = turn
    if name == len(NAMES):
        return []
    return [note(NAMES[name], sentence(NAMES[name], version) * SENTENCES)]


def sentence(name: str, version: int) -> str:
    return f"The code of {name} is {4711 + version}. "


def find_dangling(request: Json, session: Session) -> list[str]:
    """References of a request to content that does not stand in full above them, or is not the newest."""
    texts = [str(message["content"]) for message in request["messages"]]
    newest: dict[str, str] = {}
    dangling: list[str] = []
    for text in texts:
        for name, key in REFERENCE.findall(text):
            if newest.get(name) != session.recall(key).text:
                dangling.append(name)
        for name in NAMES:
            for version in range(2):
                content = sentence(name, version) * SENTENCES
                if content.rstrip() in text:
                    newest[name] = content
    return dangling


async def play(talk: list[Turn], policy: dict[str, Any]) -> None:
    async with opened(MemoryStore(), model="gpt-4o", **policy) as session:
        for number, turn in enumerate(talk):
            await session.ask(f"q{number} " + "talk " * turn[2], attach=attached(turn))
            assert find_dangling(await session.request(), session) == []
            await session.record(f"a{number} " + "words " * turn[2])


@given(turns, st.sampled_from(POLICIES))
def test_what_a_session_refers_to_stands_in_full_above(talk: list[Turn], policy: dict[str, Any]) -> None:
    anyio.run(play, talk, policy)


def a_cut_that_forgets_references(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cut, "find_lost_references", lambda *_args: [])


def a_reference_to_an_older_version(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(references, "name_attachment", identify_attachment)


@pytest.mark.parametrize("bug", [a_cut_that_forgets_references, a_reference_to_an_older_version])
def test_the_property_kills_the_bug(
    bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)

    @settings(
        max_examples=20, phases=[Phase.generate], database=None, suppress_health_check=list(HealthCheck)
    )
    @given(turns, st.sampled_from(POLICIES))
    def search(talk: list[Turn], policy: dict[str, Any]) -> None:
        anyio.run(play, talk, policy)

    def search_often() -> None:
        for number in range(20):
            seed(number)(search)()

    with pytest.raises(AssertionError):
        search_often()
