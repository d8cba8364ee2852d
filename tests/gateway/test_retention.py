"""A gateway deletes what is beyond the limits of its settings, and nothing without them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.conversations.retention import DAY, IN_USE, RecordedSize, choose_pruned
from lamina.conversations.store import conversation_place, decode_state, list_conversations
from lamina.gateway import app
from lamina.stores import open_store
from tests.gateway.growing import messages_request
from tests.gateway.running import open_client, run_gateway, settings_for, until
from tests.gateway.test_record import post
from tests.gateway.upstream_stub import run_stub

pytestmark = pytest.mark.anyio


async def age(store: Path, task: str) -> None:
    """Make the conversation with this title a year older."""
    async with open_store(str(store)) as opened:
        for kept in [kept async for kept in list_conversations(opened, "default")]:
            where = conversation_place("default", kept.name)
            source = (await opened.read(where, last=0)).head.state
            state = decode_state(source)
            if state.title == task:
                older = msgspec.structs.replace(state, updated=state.updated - 366 * 86_400)
                await opened.append(where, [], was=source, state=msgspec.json.encode(older))


@pytest.mark.parametrize(("days", "titles"), [(30, {"New."}), (None, {"Old.", "New."})])
async def test_old_conversations_are_deleted(
    days: int | None, titles: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "gateway.db"
    monkeypatch.setattr(app, "FIRST_PRUNE", 0.05)
    async with run_stub() as stub, open_client() as client:
        settings = settings_for(stub, store, keep="all", keep_days=days)
        async with run_gateway(settings_for(stub, store, keep="all")) as gateway:
            for task in ("Old.", "New."):
                await post(client, gateway.url, messages_request(1, task=task))
        await age(store, "Old.")
        async with run_gateway(settings) as gateway:
            await until(lambda: bool(gateway.events("pruned")), 60 if "Old." not in titles else 1)
    async with open_store(str(store)) as opened:
        assert {kept.state.title async for kept in list_conversations(opened, "default")} == titles


NOW = 1_800_000_000.0
AGES = st.sampled_from((0, IN_USE - 1, IN_USE, IN_USE + 1, DAY, 2 * DAY, 3 * DAY))


@given(
    st.lists(st.tuples(AGES, st.integers(0, 9))),
    st.none() | st.integers(0, 3),
    st.none() | st.integers(0, 30),
)
def test_what_is_in_use_stays_and_of_the_rest_the_oldest_goes_first(
    ages_and_sizes: list[tuple[float, int]], days: int | None, size: int | None
) -> None:
    rows = [
        RecordedSize(name=str(place), updated=NOW - age, size=each)
        for place, (age, each) in enumerate(ages_and_sizes)
    ]
    pruned = choose_pruned(rows, now=NOW, days=days, size=size)
    ages = {row.name: NOW - row.updated for row in rows}
    unused = {name for name, age in ages.items() if age >= IN_USE}
    kept = unused - set(pruned.names)
    assert set(pruned.names) <= unused
    assert pruned.size == sum(row.size for row in rows if row.name not in pruned.names)
    assert all(ages[name] > days * DAY for name in pruned.too_old if days is not None)
    assert days is None or all(ages[name] <= days * DAY for name in kept)
    assert not pruned.too_large or min(ages[name] for name in pruned.too_large) >= max(
        map(ages.__getitem__, kept), default=0
    )
    assert size is None or not kept or pruned.size <= size
