"""LangGraph's own suite for checkpointers, over lamina's stores, and what that suite does not ask."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(
    "langgraph.checkpoint.conformance", reason="langgraph is not installed: run `make adapters` to test it"
)

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.report import ProgressCallbacks
from langgraph.checkpoint.memory import InMemorySaver

from lamina.adapters.langgraph import LaminaSaver
from lamina.errors import BadInput
from lamina.stores import RecordPage, Store, Where

THREAD: Any = {"configurable": {"thread_id": "one", "checkpoint_ns": ""}}


@pytest.mark.parametrize("address", ["memory:", "chats.db", "files:chats"])
def test_langgraphs_suite(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Any
) -> None:
    monkeypatch.chdir(tmp_path)

    @checkpointer_test(name=address)
    async def make_saver() -> AsyncIterator[LaminaSaver]:
        with LaminaSaver(address) as saver:
            yield saver

    failures = run_suite(make_saver, f"LaminaSaver {address.partition('.')[0]}", record_property)
    assert failures == []


def test_langgraphs_suite_over_its_own_saver(record_property: Any) -> None:
    @checkpointer_test(name="official")
    async def make_saver() -> AsyncIterator[InMemorySaver]:
        yield InMemorySaver()

    assert run_suite(make_saver, "InMemorySaver (official)", record_property) == []


def run_suite(saver: Any, who: str, record_property: Any) -> list[str]:
    """Run LangGraph's suite, record passed and total for `make adapters`, and return what failed."""
    outcomes: list[tuple[str, bool]] = []

    def note_result(group: str, test: str, passed: bool, _: str | None) -> None:
        outcomes.append((f"{group}: {test}", passed))

    asyncio.run(validate(saver, progress=ProgressCallbacks(on_test_result=note_result)))
    failures = [name for name, passed in outcomes if not passed]
    groups = len({name.partition(":")[0] for name, _ in outcomes})
    score = f"{len(outcomes) - len(failures)}/{len(outcomes)} in {groups} of 8 groups"
    record_property(f"langgraph-checkpoint-conformance, {who}", score)
    return failures


def put_messages(saver: LaminaSaver | InMemorySaver, texts: list[str]) -> Any:
    checkpoint = empty_checkpoint()
    version = saver.get_next_version(None, None)
    checkpoint["channel_values"] = {"messages": texts, "count": len(texts)}
    checkpoint["channel_versions"] = {"messages": version, "count": version}
    return saver.put(THREAD, checkpoint, {}, checkpoint["channel_versions"])


def test_a_thread_grows_with_its_messages_and_not_with_their_square(tmp_path: Path) -> None:
    texts: list[str] = []
    with LaminaSaver(f"files:{tmp_path}") as saver:
        for number in range(100):
            texts = [*texts, f"{number}: " + "x" * 1_000]
            put_messages(saver, texts)
    size = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert size < 600_000  # 100 lists of up to 100 messages of 1,000 bytes have 5,050,000 bytes
    with LaminaSaver(f"files:{tmp_path}") as saver:
        latest = saver.get_tuple(THREAD)
        assert latest is not None
        assert latest.checkpoint["channel_values"] == {"messages": texts, "count": 100}


async def read_all(store: Store, where: Where) -> RecordPage:
    return await store.read(where)


def test_what_is_pruned_is_gone_and_others_notice(tmp_path: Path) -> None:
    address = f"files:{tmp_path}"
    with LaminaSaver(address) as saver, LaminaSaver(address) as other:
        put_messages(saver, ["the secret"])
        put_messages(saver, ["something else"])
        assert len(list(other.list(THREAD))) == 2
        saver.prune(["one"])
        rest = [each.checkpoint["channel_values"]["messages"] for each in other.list(None)]
        assert rest == [["something else"]]
        where = Where("langgraph", "one")
        stored = b"".join(record.body for record in saver.store.run(read_all, where).records)
    assert b"the secret" not in stored
    assert b"something else" in stored


def test_bad_input_is_told() -> None:
    with LaminaSaver("memory:") as saver:
        with pytest.raises(BadInput, match="keep_latest"):
            saver.prune(["one"], strategy="half")
        saver.store.close()
        with pytest.raises(BadInput, match="closed"):
            saver.get_tuple(THREAD)
