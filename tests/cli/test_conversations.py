"""`lamina log` and `lamina store`: one list for every door, and exports that come back."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from lamina.conversations.store import conversation_place, read_record
from lamina.costs import Trace, read_traces
from lamina.sessions import Session
from lamina.stores import Where, open_store
from tests.cli.running import Ran, run
from tests.conversations.recorded import ANSWER, DAY, NOON, PROMPT, RESULT, keep_session, record_talk

TALK = "claude-code-5f0c1b7a"


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A store with a talk through the gateway, a wrapped client's, a session and a chat."""
    address = f"{tmp_path}/kept.db"

    async def fill() -> None:
        async with open_store(address) as opened:
            await record_talk(opened)
            await record_talk(
                opened, name="claude-code-77aa", keep="lowered", updated=NOON - 40 * DAY, opening="good day"
            )
            await record_talk(opened, name="begins-00", door="wrap", keep="nothing", updated=NOON - 2 * DAY)
            await keep_session(opened)
            await keep_session(opened, name="evening")

    anyio.run(fill)
    return address


def ask(store: str, *arguments: str | Path) -> Ran:
    command = ["store", *arguments]
    if arguments[0] in ("list", "show"):
        command = ["log", *arguments[1:]]
    done = run(*command, "--store", store)
    assert "Traceback" not in done.err
    return done


def names(store: str, *filters: str) -> list[str]:
    rows = json.loads(ask(store, "list", "--json", *filters).out)["conversations"]
    return sorted(row["name"] for row in rows)


def test_one_list_has_the_conversations_of_every_door(store: str) -> None:
    rows = {row["name"]: row for row in json.loads(ask(store, "list", "--json").out)["conversations"]}
    assert {name: row["door"] for name, row in rows.items()} == {
        TALK: "gateway",
        "claude-code-77aa": "gateway",
        "begins-00": "wrap",
        "support-42": "session",
        "evening": "session",
    }
    talk = rows[TALK]
    assert (talk["requests"], talk["cuts"], talk["model"], talk["client"]) == (4, 1, "gpt-5", "session-42")
    assert talk["updated"].endswith("+00:00")
    printed = ask(store, "list")
    assert printed.err == "5 conversations\n"
    lines = printed.out.splitlines()
    [place] = [number for number, line in enumerate(lines) if line.startswith(f"    {TALK}  ")]
    assert lines[place - 1].startswith("2026-09-21 14:13  Log in with")
    assert lines[place] == f"    {TALK}  gateway, 4 requests, 1 cut, gpt-5, session-42"


def test_filters_find_by_date_client_door_and_words(store: str) -> None:
    assert names(store, "--door", "session") == ["evening", "support-42"]
    assert names(store, "--since", "2026-09-20", "--door", "gateway") == [TALK]
    assert names(store, "--since", "1h") == ["evening", "support-42"]
    assert names(store, "--client", "claude-code-7") == ["claude-code-77aa"]
    assert names(store, "--client", "session-42", "--text", "nothing ELSE") == [TALK]  # in the record only
    assert names(store, "--text", RESULT.upper()) == sorted(
        [TALK, "claude-code-77aa", "support-42", "evening"]
    )
    assert names(store, "--text", "no such words") == []
    assert run("log", "--since", "soon").code == 2


def test_a_name_is_given_by_its_beginning(store: str) -> None:
    shown = json.loads(ask(store, "show", "claude-code-5", "--json").out)
    assert shown["name"] == TALK
    assert f"'claude-code-5' is taken for {TALK!r}\n" in ask(store, "show", "claude-code-5").err
    assert "taken for" not in ask(store, "show", TALK).err
    several = ask(store, "show", "claude-code")
    assert several.code == 2
    assert f"2 conversations begin so; it is one of {TALK}, claude-code-77aa" in several.err
    assert ask(store, "show", "nobody").code == 4


def test_show_says_what_happened_and_what_is_kept(store: str) -> None:
    shown = ask(store, "show", TALK)
    lines = shown.out.splitlines()
    assert all(len(line) <= 80 for line in lines)
    requests = [line for line in lines if line.startswith("   ") and "  2026-09-21" in line]
    assert [line.split()[0] for line in requests] == ["1", "2", "3", "4"]
    assert requests[3].split()[3:5] == ["500", "50"]
    assert requests[3].endswith("200")
    assert lines[lines.index(requests[3]) + 1] == "      cut 1: over the trigger, 900 to 300 tokens"
    assert "$" in requests[0]
    assert shown.err == "this store keeps every request and every answer\n"
    shown = ask(store, "show", "claude-code-77")
    assert 'only what was left out; policy.keep = "all" keeps requests' in shown.err
    assert "keeps no texts" in ask(store, "show", "begins").err
    session = ask(store, "show", "support")
    assert f"user: Log in with {PROMPT}." in session.out
    [last] = json.loads(ask(store, "show", TALK, "--json").out)["request_list"][3:]
    assert (last["status"], last["usage"]["cached"], last["cut"]["number"]) == (200, 50, 1)
    assert last["cost"] > 0


def export(store: str, name: str, form: str = "json") -> str:
    return ask(store, "export", name, "--format", form).out


@pytest.mark.parametrize("name", [TALK, "claude-code-77aa", "begins-00"])
def test_an_exported_record_comes_back_byte_for_byte(store: str, name: str, tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    file.write_text(export(store, name), "utf-8")
    other = f"files:{tmp_path}/other"
    assert ask(other, "import", file, "again").err == "4 requests imported as 'again'\n"
    assert export(other, "again") == export(store, name)
    assert ask(other, "import", file, "again").code == 2

    async def compare() -> None:
        async with open_store(store) as first, open_store(other) as second:
            one = await read_record(first, "default", name)
            two = await read_record(second, "default", "again")
            for call, copied in zip(one.calls, two.calls, strict=True):
                assert one.sent_body(call) == two.sent_body(copied)
                assert one.came_body(call) == two.came_body(copied)
                assert one.answer_body(call) == two.answer_body(copied)
                assert one.ledger(call) == two.ledger(copied)

    anyio.run(compare)


def test_the_last_request_can_be_moved_to_another_provider(store: str) -> None:
    """It is the caller's own, whole, and another API takes it."""
    request = export(store, TALK, "request")
    [*_, line] = [json.loads(line) for line in export(store, TALK).splitlines() if "sent" in json.loads(line)]
    assert json.loads(request) == line.get("came", line["request"])
    moved = run("fit", "-", "--to", "gemini", "--model", "gemini-3-pro", given=request.encode())
    assert moved.code == 0
    assert json.loads(moved.out)["contents"]
    assert ask(store, "export", "nobody", "--format", "request").code != 0


def test_an_exported_record_is_replayed_like_any_log(store: str, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "talk.jsonl").write_text(export(store, TALK), "utf-8")
    traces = [trace for trace in read_traces(tmp_path / "logs") if isinstance(trace, Trace)]
    assert traces
    assert {trace.model for trace in traces} == {"gpt-5"}


def test_a_talk_is_a_page_of_markdown_which_is_for_reading(store: str, tmp_path: Path) -> None:
    page = export(store, TALK, "markdown")
    assert "Thank you, nothing else." in page
    assert "You are welcome." in page
    file = tmp_path / "talk.md"
    file.write_text(page, "utf-8")
    refused = ask(store, "import", file, "as-session")
    assert refused.code == 2
    assert "export the conversation again with --format json" in refused.err
    refused = ask(store, "export", "begins-00")
    assert refused.code == 2
    assert "keeps no texts" in refused.err


def test_copy_takes_everything_and_seals_it(store: str, tmp_path: Path) -> None:
    key = str(tmp_path / "key")
    target = f"{tmp_path}/sealed.db"
    copied = json.loads(ask(store, "copy", target, "--new-key-file", key, "--json").out)["copied"]
    assert sorted(copied) == names(store)
    assert PROMPT.encode() not in Path(target).read_bytes()
    rows = json.loads(run("log", "--json", "--store", target, "--key-file", key).out)
    assert sorted(rows["conversations"], key=lambda row: row["name"]) == sorted(
        json.loads(ask(store, "list", "--json").out)["conversations"], key=lambda row: row["name"]
    )
    verified = run("store", "verify", "--store", target, "--key-file", key)
    assert verified.code == 0
    assert run("store", "delete", TALK, "--yes", "--store", target, "--key-file", key).code == 0
    again = f"{tmp_path}/again.db"
    assert run("store", "copy", again, "--store", target, "--key-file", key).code == 0
    assert names(again) == [name for name in names(store) if name != TALK]


def test_delete_and_prune_ask_first(store: str) -> None:
    asked = ask(store, "delete", TALK)
    assert (asked.code, "say --yes if you mean it" in asked.err) == (2, True)
    assert ask(store, "prune", "--days", "30").err.startswith("lamina: prune: 3 conversations would be gone")
    assert len(names(store)) == 5
    deleted = json.loads(ask(store, "prune", "--days", "30", "--yes", "--json").out)["deleted"]
    assert sorted(deleted) == sorted([TALK, "claude-code-77aa", "begins-00"])
    assert names(store) == ["evening", "support-42"]
    assert ask(store, "delete", "evening", "--yes").err == "deleted: 'evening'\n"
    gone = ask(store, "show", "evening")
    assert (gone.code, gone.out) == (4, "")
    assert ask(store, "prune", "--size", "2GB", "--yes").err == "deleted: 0 conversations\n"


def test_messages_are_found_by_a_text_and_erased_by_their_keys(store: str) -> None:
    found = json.loads(ask(store, "erase", TALK, "--text", PROMPT, "--json").out)["found"]
    assert [(message["role"], message["is_own"]) for message in found] == [("user", False), ("user", True)]
    shown = ask(store, "erase", TALK, "--text", PROMPT)
    assert f"{found[0]['key']}  user" in shown.out
    assert f"{found[1]['key']}  made by lamina" in shown.out
    assert ask(store, "erase", TALK).code == 2
    assert ask(store, "erase", TALK, found[0]["key"], "--text", PROMPT, "--yes").code == 2
    assert ask(store, "erase", TALK, found[0]["key"]).err.startswith("lamina: erase: 1 message would be gone")
    assert ask(store, "erase", TALK[:-1], found[0]["key"], "--yes").code == 4
    assert PROMPT in export(store, TALK)
    erased = ask(store, "erase", TALK, found[0]["key"], "--yes")
    assert erased.err.startswith(f"erased: 1 message of {TALK!r}, and what was made of it, in ")
    assert PROMPT not in export(store, TALK)
    assert ANSWER in export(store, TALK)
    assert ask(store, "erase", TALK, "--text", ANSWER, "--yes").code == 0
    assert ANSWER not in export(store, TALK)
    assert "erased" in ask(store, "show", TALK).err
    gone = run("recall", TALK, found[0]["key"], "--store", store)
    assert (gone.code, "were erased" in gone.err) == (4, True)
    assert ask(store, "verify").code == 0


OPTIONS = {
    "--since": ("7d",),
    "--client": ("session-42",),
    "--door": ("wrap",),
    "--text": (PROMPT,),
    "--format": ("json",),
    "--new-key-file": ("new.key",),
    "--all": (),
    "--days": ("1",),
    "--size": ("1",),
    "--yes": (),
    "--once": (),
}
READS = {
    "list": "--since --client --door --text",
    "show": "",
    "export": "--format",
    "import": "",
    "copy": "--new-key-file",
    "delete": "--client --all --yes",
    "erase": "--text --yes",
    "prune": "--days --size --yes",
    "verify": "",
}


@pytest.mark.parametrize("action", READS)
def test_an_option_that_an_action_does_not_read_is_refused(store: str, action: str, tmp_path: Path) -> None:
    """`delete --all --since 7d` and `prune --client ID` once deleted what the filter should have kept."""
    words = {"list": "", "prune": "", "copy": f"{tmp_path}/copy.db", "import": "talk again", "erase": "a key"}
    given = words.get(action, TALK).split()
    for option, value in OPTIONS.items():
        if option not in READS[action].split():
            assert ask(store, action, *given, option, *value).code == 2
    assert len(names(store)) == 5


def test_no_filter_beside_all_deletes_everything(store: str) -> None:
    for option in ("--since", "--client", "--door", "--text"):
        for value in {*OPTIONS[option], ""}:
            assert ask(store, "delete", "--all", option, value, "--yes").code == 2
    assert len(names(store)) == 5


@pytest.mark.parametrize(("action", "confirm"), [("delete", ["--yes"]), ("verify", [])])
def test_what_deletes_or_proves_takes_a_name_in_full(store: str, action: str, confirm: list[str]) -> None:
    """A retry of a deletion once deleted the conversation of another user, whose name began alike."""
    refused = ask(store, action, "support-4", *confirm)
    assert refused.code == 4
    assert "there is none of this name; 1 begins so: 'support-42'" in refused.err
    assert len(names(store)) == 5


def test_recall_answers_from_no_other_conversation(store: str) -> None:
    refused = run("recall", "claude-code-77", "fold-1", "--store", store)
    assert (refused.code, refused.out) == (4, "")
    assert "there is none of this name; 1 begins so: 'claude-code-77aa'" in refused.err


def test_one_command_deletes_a_user(store: str) -> None:
    """All that a client began goes with its forks, and so do forks of forks. Nothing else does."""

    async def fork() -> None:
        async with open_store(store) as opened:
            async with Session.open(opened, "support-42", workspace="") as session:
                child = await session.fork(name="a-fork")
                await child.fork(name="a-fork-of-it")
            await record_talk(opened, name="support-421", opening="seven")
            await record_talk(opened, name="branch", parent="support-42", opening="eight")

    anyio.run(fork)
    asked = ask(store, "delete", "--client", "support-42")
    assert (asked.code, "4 conversations would be gone for good" in asked.err) == (2, True)
    done = json.loads(ask(store, "delete", "--client", "support-42", "--yes", "--json").out)
    assert sorted(done["deleted"]) == ["a-fork", "a-fork-of-it", "branch", "support-42"]
    assert names(store) == sorted([TALK, "claude-code-77aa", "begins-00", "evening", "support-421"])
    by_id = json.loads(ask(store, "delete", "--client", "session-42", "--yes", "--json").out)["deleted"]
    assert sorted(by_id) == sorted([TALK, "claude-code-77aa", "begins-00", "support-421"])
    assert ask(store, "delete", "--client", "nobody", "--yes").code == 4
    assert ask(store, "delete", "--yes").code == 2
    assert ask(store, "delete", "evening", "--all", "--yes").code == 2


def test_one_command_deletes_a_workspace(store: str) -> None:
    async def add_elsewhere() -> None:
        async with open_store(store) as opened, Session.open(opened, "x", workspace="other") as session:
            await session.ask("Hi")

    anyio.run(add_elsewhere)
    assert ask(store, "delete", "--all").code == 2
    done = json.loads(ask(store, "delete", "--all", "--yes", "--json").out)
    assert sorted(done["deleted"]) == sorted([TALK, "claude-code-77aa", "begins-00", "evening", "support-42"])
    with closing(sqlite3.connect(store)) as connection:
        rows = connection.execute("SELECT workspace, name FROM conversation").fetchall()
    assert rows == [("other", "x")]


def test_prune_keeps_a_size_and_drops_the_oldest_first(store: str) -> None:
    whole = json.loads(ask(store, "prune", "--size", "2 GB", "--yes", "--json").out)
    assert whole["deleted"] == []
    less = json.loads(ask(store, "prune", "--size", str(whole["size"] - 1), "--yes", "--json").out)
    assert less["deleted"] == ["claude-code-77aa"]
    assert less["size"] < whole["size"]


def test_recall_reads_records(store: str) -> None:
    for name in (TALK, "claude-code-77aa"):
        explained = run("recall", name, "fold-1", "--store", store)
        assert RESULT in explained.out
    gone = run("recall", "begins-00", "fold-1", "--store", store)
    assert gone.code == 4
    assert "keeps no texts" in gone.err


def test_a_damaged_record_is_found_and_the_rest_is_rescued(store: str, tmp_path: Path) -> None:
    with closing(sqlite3.connect(store, isolation_level=None)) as raw:
        raw.execute(
            "UPDATE record SET body = x'00' WHERE seq = 0 AND conversation = ? "
            "AND workspace LIKE 'lamina.conv%'",
            (TALK,),
        )
    assert ask(store, "verify", TALK).code == 4
    rescued = ask(store, "export", TALK, "--damaged")
    assert rescued.code == 0
    assert "not whole, or gone: 0" in rescued.err
    file = tmp_path / "rescued"
    file.write_text(rescued.out, "utf-8")
    assert ask(store, "import", file, "rescued").err == "4 requests imported as 'rescued'\n"
    assert ANSWER in export(store, "rescued")


def test_verify_finds_a_body_that_is_not_the_one_that_left(store: str) -> None:
    async def change() -> None:
        async with open_store(store) as opened:
            where = conversation_place("default", TALK)
            page = await opened.read(where)
            [place] = [
                item.seq for item in page.records if RESULT.encode() in item.body and item.body[:1] == b"="
            ][:1]
            body = page.records[place].body.replace(b"and so on", b"and so no", 1)
            await opened.replace(where, {place: body}, expect=page.head.count)  # type: ignore[attr-defined]

    anyio.run(change)
    done = ask(store, "verify")
    assert done.code == 4
    assert "is not the one that left" in done.err


def test_a_session_with_a_record_is_one_conversation(store: str, tmp_path: Path) -> None:
    async def add() -> None:
        async with open_store(store) as opened:
            await record_talk(opened, name="evening", door="session", opening="nine")

    anyio.run(add)
    assert len(names(store)) == 5
    file = tmp_path / "evening.jsonl"
    file.write_text(export(store, "evening"), "utf-8")
    assert ask(store, "import", file, "morning").code == 0

    async def compare() -> None:
        async with open_store(store) as opened:
            assert await opened.read(Where("", "morning")) == await opened.read(Where("", "evening"))

    anyio.run(compare)
