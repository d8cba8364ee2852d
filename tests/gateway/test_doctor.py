"""`lamina doctor`: each line, its verdict and its next step."""

from __future__ import annotations

import json
import socket
import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from lamina.cli import doctor
from tests.cli.running import run
from tests.servers.serving import serve_http

LIMIT = "CLAUDE_CODE_MAX_OUTPUT_TOKENS"


@pytest.fixture(autouse=True)
def _no_network_and_no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (LIMIT, "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "LAMINA_KEY"):
        monkeypatch.delenv(name, raising=False)
    # To look through everything that is installed takes half a second; tests/cli/test_foreign.py does.
    monkeypatch.setattr(doctor, "find_foreign_distributions", list)


@pytest.fixture
def forbid_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the doctor used the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def lines_of(*arguments: str | Path) -> tuple[int, dict[str, dict[str, Any]]]:
    done = run("doctor", "--json", *arguments)
    lines = json.loads(done.out)["lines"]
    return done.code, {line["subject"]: line for line in lines}


@pytest.mark.usefixtures("forbid_network")
def test_a_good_set_up_is_ok_without_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret-key")
    _add_program(tmp_path, "claude", monkeypatch)
    done = run("doctor", "--store", tmp_path / "g.db", "claude")
    assert done.code == 0, done.out
    assert "ok      settings: " in done.out
    assert "ok      store: there is none yet" in done.out
    assert "ok      key: ANTHROPIC_API_KEY is set" in done.out
    assert "-> start it with lamina run -- claude" in done.out
    assert "secret-key" not in done.out
    assert not (tmp_path / "g.db").exists()


def _add_program(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / name
    program.write_text(f"#!{sys.executable}\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(folder))


def test_a_store_that_cannot_be_opened_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a store, but a text that is long enough to be read as one" * 20)
    for store in (tmp_path / "file", tmp_path / "file" / "g.db"):
        code, lines = lines_of("--store", store)
        assert code == 1
        assert lines["store"]["verdict"] == "wrong"
        assert lines["store"]["next_step"]


def test_wrong_settings_are_named_with_their_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text("port = 4949\npolicy.keep = 'some'\n")
    code, lines = lines_of("--store", "memory:", "--settings", file)
    assert code == 1
    assert f"{file}:2" in lines["gateway"]["text"]
    user_file = tmp_path / "settings.toml"
    user_file.write_text("[policy]\nbudget = 'many'\n")
    monkeypatch.setenv("LAMINA_SETTINGS", str(user_file))
    code, lines = lines_of("--store", "memory:")
    assert code == 1
    assert lines["settings"]["verdict"] == "wrong"


@pytest.mark.parametrize(
    ("value", "verdict"),
    [("", "remark"), ("16000", "ok"), ("32000", "wrong"), ("many", "wrong")],
)
def test_the_answer_must_leave_room_in_the_window(
    value: str, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if value:
        monkeypatch.setenv(LIMIT, value)
    _, lines = lines_of("--store", "memory:", "claude", "--window", "64000")
    assert lines[LIMIT]["verdict"] == verdict
    if verdict != "ok":
        assert "16000" in lines[LIMIT]["next_step"]


def test_a_client_that_is_missing_or_points_elsewhere_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://user:password@proxy.test/x")
    code, lines = lines_of("--store", "memory:", "claude")
    assert code == 1
    assert lines["claude"]["next_step"] == "install claude"
    assert lines["key"]["verdict"] == "remark"
    assert lines["ANTHROPIC_BASE_URL"]["text"] == "is set to http://proxy.test/x"


class _Answering(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.send_response(404)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        return


def test_an_upstream_is_reached_only_if_that_is_asked_for() -> None:
    with serve_http(_Answering) as url:
        code, lines = lines_of("--store", "memory:", "--upstream", url)
        assert code == 0
        assert lines["upstream upstream"]["text"] == f"{url} answers (status 404)"
    code, lines = lines_of("--store", "memory:", "--upstream", url)
    assert code == 1
    assert lines["upstream upstream"]["next_step"].startswith("start the server")
    assert "upstream upstream" not in lines_of("--store", "memory:")[1]


def test_markers_and_attribution_depend_on_client_and_upstream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLAUDE_CODE_ATTRIBUTION_HEADER", raising=False)
    for name in ("claude", "aider", "codex"):
        _add_program(tmp_path, name, monkeypatch)
    store = ["--store", str(tmp_path / "g.db")]
    code, lines = lines_of(*store, "claude")
    assert code == 0
    assert lines["breakpoints at anthropic"]["verdict"] == "ok"
    assert lines["attribution at anthropic"]["verdict"] == "ok"
    assert lines["journal"]["text"].endswith("g.db.requests.jsonl")

    file = tmp_path / "gateway.toml"
    file.write_text("[upstreams.own]\nurl = 'http://127.0.0.1:1'\nprofile = 'anthropic'\n")
    _, lines = lines_of(*store, "--settings", file, "claude")
    assert lines["attribution at own"]["verdict"] == "remark"
    assert "CLAUDE_CODE_ATTRIBUTION_HEADER=0" in lines["attribution at own"]["next_step"]
    monkeypatch.setenv("CLAUDE_CODE_ATTRIBUTION_HEADER", "0")
    _, lines = lines_of(*store, "--settings", file, "claude")
    assert lines["attribution at own"]["verdict"] == "ok"
    monkeypatch.delenv("CLAUDE_CODE_ATTRIBUTION_HEADER")

    _, lines = lines_of(*store, "--settings", file, "aider")
    assert lines["breakpoints at own"]["text"] == "lamina places cache breakpoints in requests that have none"
    assert "attribution at own" not in lines
    settings = file.read_text()
    file.write_text(settings + "policy.breakpoints = 'keep'\n")
    _, lines = lines_of(*store, "--settings", file, "aider")
    assert (
        lines["breakpoints at own"]["next_step"] == 'set `policy.breakpoints = "auto"` under [upstreams.own]'
    )
    file.write_text(settings.replace("'anthropic'", "'vllm'") + "policy.breakpoints = 'plan'\n")
    _, lines = lines_of(*store, "--settings", file, "claude")
    assert lines["breakpoints at own"]["verdict"] == lines["attribution at own"]["verdict"] == "ok"

    monkeypatch.setenv("CLAUDE_CODE_AUTO_COMPACT_WINDOW", "30000")
    _, lines = lines_of(*store, "claude", "--window", "64000")
    assert lines["CLAUDE_CODE_AUTO_COMPACT_WINDOW"]["verdict"] == "remark"
    _, lines = lines_of(*store, "codex", "--window", "64000")
    assert lines["window"]["verdict"] == "ok"
    assert not [name for name in lines if name.startswith("markers")]


def test_it_says_of_the_window_what_run_says_in_its_first_line(tmp_path: Path) -> None:
    for options, beginning in (((), "about 48,000 tokens"), (("--window", "model"), "requests may fill")):
        done = run("doctor", "--json", "--store", tmp_path / "g.db", "claude", *options)
        [window] = [line for line in json.loads(done.out)["lines"] if line["subject"] == "window"]
        assert window["text"].startswith(beginning)


@pytest.mark.usefixtures("forbid_network")
def test_it_says_what_was_inferred_of_the_models_in_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = [("claude-opus-6", "anthropic"), ("my-model", "anthropic"), ("nobody-1", ""), ("gpt-5", "")]
    events = [{"event": "answered", "model": name, "dialect": dialect} for name, dialect in asked]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    (tmp_path / "gateway.toml").write_text(
        f'journal = "{tmp_path}/log.jsonl"\n'
        '[upstreams.own]\nurl = "http://127.0.0.1:1"\nprofile = "anthropic"\n'
    )
    _, lines = lines_of("--settings", "gateway.toml")
    assert lines["model claude-opus-6"]["text"] == (
        "window, tokens and cache as claude-opus-5-5's, since claude-opus-6 is on no list; prices not known"
    )
    assert "since my-model is on no list" in lines["model my-model"]["text"]
    assert lines["model nobody-1"]["text"] == "neither its window nor its prices are known"
    assert "model gpt-5" not in lines
