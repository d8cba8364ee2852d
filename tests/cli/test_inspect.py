"""`lamina inspect` says what it cannot read, and writes no page about nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from lamina.cli import main, parser_for
from lamina.cli.demo_session import SEED
from lamina.cli.inspect import DemoSource
from lamina.inspector import Inspector, Sessions
from lamina.inspector.comparisons import compare_requests
from lamina.inspector.request_views import show_request
from lamina.inspector.views import show_session
from lamina.sessions import Session
from lamina.settings import load_settings
from lamina.stores.address import open_default_store
from tests.cli.running import SHORT, run, saved
from tests.gateway.growing import messages_request
from tests.gateway.running import open_client, run_gateway, settings_for
from tests.gateway.test_conversations import SMALL, post
from tests.gateway.upstream_stub import run_stub
from tests.inspector.recorded import write_session


def test_a_file_that_cannot_be_read_is_named_and_no_empty_page_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_bytes(b"\xff\xfe no session\n")
    page = tmp_path / "page.html"
    assert main(["inspect", str(broken), "--html", str(page)]) == 2
    errors = capsys.readouterr().err
    assert "broken.jsonl" in errors
    assert "there is no session to write" in errors
    assert not page.exists()


def test_what_cannot_be_opened_is_said_in_one_line(tmp_path: Path) -> None:
    request = saved(tmp_path, SHORT)
    database = tmp_path / "chats.db"
    database.write_bytes(b"SQLite format 3\0" + bytes(100))
    missing = tmp_path / "missing" / "page.html"
    for arguments, problem in (
        (("inspect", database, "--html", "-"), "a store is opened with --store"),
        (("inspect", request, "--html", missing), "its folder is not there"),
        (("inspect", request, "--html", tmp_path), f"{tmp_path}: it cannot be written: Is a directory"),
        (("inspect", request, "--redact"), "give --html FILE, too"),
        (("inspect", request, "--html", "-", "--port", "7"), "leave out --open and --port"),
        (("inspect", request, "--port", "99999"), "there is no port 99999"),
        (("inspect", "--store", tmp_path, "--html", "-"), f"or write files:{tmp_path}"),
        (("cost", database), "--store"),
        (("cost", request, "--jobs", "1"), "there is no call of a model in it"),
    ):
        done = run(*arguments)
        assert (done.code, done.out) == (2, ""), arguments
        assert problem in done.err
        assert done.err.count("\n") == 1


def test_a_page_is_written_beside_what_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session = write_session(tmp_path, turns=1)
    broken = tmp_path / "broken.jsonl"
    broken.write_bytes(b"\xff\xfe no session\n")
    page = tmp_path / "page.html"
    assert main(["inspect", str(session), str(broken), "--html", str(page)]) == 0
    assert "broken.jsonl" in capsys.readouterr().err
    assert "lamina-data" in page.read_text("utf-8")


def test_conversations_of_a_gateway_that_keeps_all_can_be_inspected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def converse(store: Path, keep: str) -> None:
        async with (
            run_stub() as stub,
            run_gateway(settings_for(stub, store, keep=keep, **SMALL)) as gateway,
            open_client() as client,
        ):
            for steps in (0, 20):
                await post(client, gateway.url, messages_request(steps))

    page = tmp_path / "page.html"
    texts: list[str] = []
    for keep in ("all", "lowered"):
        store = tmp_path / f"{keep}.db"
        asyncio.run(converse(store, keep))
        assert main(["inspect", "--store", str(store), "--html", str(page)]) == 0
        texts.append(page.read_text("utf-8"))
    assert "function_19" in texts[0]
    assert "function_19" not in texts[1]
    assert "function_1(" in texts[1]  # it was lowered, so it is kept
    assert 'keep = \\"all\\"' in texts[1]  # the page says which setting keeps the texts
    assert not capsys.readouterr().out


def test_the_users_own_store_is_opened_by_store_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    async def talk() -> None:
        async with (
            open_default_store(load_settings()) as store,
            Session.open(store, "fence", model="gpt-5") as session,
        ):
            await session.ask("Is the fence green?")

    asyncio.run(talk())
    done = run("inspect", "--store", "--html", "-")
    assert done.code == 0
    assert "Is the fence green?" in done.out
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    assert "Is the fence green?" in run("inspect", "--html", "-").out


def test_what_to_do_first_is_said_where_there_is_nothing_to_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    done = run("inspect")
    assert (done.code, done.out) == (2, "")
    assert "lamina run -- claude" in done.err
    store = Path(load_settings().store_address())
    store.parent.mkdir(parents=True)
    store.write_bytes(b"no database at all, but long enough to look like one " * 20)
    done = run("inspect")
    assert "your own store is left out: " in done.err
    assert done.code == 2


@pytest.mark.parametrize("seed", [3, pytest.param(SEED, marks=pytest.mark.thorough)])
def test_the_demo_has_cuts_a_lost_cache_a_recall_a_sub_agent_and_an_error(seed: int) -> None:
    parser = parser_for("inspect")
    assert parser.parse_args(["--demo"]).demo == SEED
    source = DemoSource(parser.parse_args(["--demo", str(seed), "--open"]).demo)
    inspector = Inspector(Sessions([], [source]))
    (parent,) = [each for each in inspector.sessions.summaries() if not each.parent]
    assert parent.name == f"made up, seed {seed}"
    assert parent.calls > 100
    shown = show_session(inspector, parent.id)
    calls = shown["calls"]
    cuts = [call["number"] for call in calls if call["cut"]]
    assert len(cuts) >= 2
    (recalled,) = [call["number"] for call in calls if call["recalled"]]
    assert calls[recalled + 1]["follows"] == recalled
    (lost,) = [call["number"] for call in calls if call["loss"] and not call["cut"]]
    compared = compare_requests(inspector, parent.id, lost - 1, lost)
    assert (compared["cause"], compared["reported"]["loss"]["by"]) == ("system changed", "client")
    (refused,) = [call for call in calls if call["refusal"]]
    assert refused["status"] == 529
    (lane,) = shown["lanes"]
    assert len(lane["calls"]) > 3
    for number in (cuts[0], recalled, recalled + 1, lost, len(calls) - 1):
        request = show_request(inspector, parent.id, number)
        assert request["entries"]
        assert request["notes"] == []  # the reasons of every entry can be told
