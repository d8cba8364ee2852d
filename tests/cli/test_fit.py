from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from lamina.core.values import Ledger
from lamina.dialects import DIALECTS
from lamina.fitting import fit_request
from tests.cli.running import LONGER, SHORT, long_session, run, saved

WINDOW = ("--window", "5000")


def test_a_request_that_fits_comes_out_as_it_is_with_an_account_beside_it(tmp_path: Path) -> None:
    done = run("fit", saved(tmp_path, SHORT), "--window", "2000")
    assert done.code == 0
    assert json.loads(done.out) == SHORT
    assert done.out.count("\n") == 1
    assert done.err == "18 of 1,750 tokens (exact), 2 of 2 pieces in full\n"


def test_standard_input_is_a_request_too() -> None:
    done = run("fit", "-", "--window", "2000", given=json.dumps(SHORT).encode())
    assert (done.code, json.loads(done.out)) == (0, SHORT)


def test_what_is_too_long_is_lowered_and_valid(tmp_path: Path) -> None:
    request = long_session(12)
    done = run("fit", saved(tmp_path, request), *WINDOW)
    fitted = json.loads(done.out)
    assert len(done.out) < len(json.dumps(request)) / 2
    assert DIALECTS["openai_chat"].wire.check(fitted) == []
    first, cut = done.err.splitlines()
    assert first.endswith("pieces in full")
    assert cut.startswith("cut 1: over the trigger, ")


def test_json_is_one_object_with_all_that_was_decided(tmp_path: Path) -> None:
    request = long_session(12)
    done = run("fit", saved(tmp_path, request), *WINDOW, "--json")
    found = json.loads(done.out)
    assert (done.code, done.err) == (0, "")
    assert [*found] == ["request", "ledger", "left", "manifest"]
    manifest = found["manifest"]
    assert sum(manifest["layers"].values()) + manifest["tools"] + manifest["request"] == manifest["tokens"]
    assert len(Ledger.load(found["ledger"]).cuts) == 1


def test_a_ledger_makes_the_next_request_continue_this_one(tmp_path: Path) -> None:
    ledger, outputs = tmp_path / "ledger.json", []
    for steps in (12, 13):
        path = saved(tmp_path, long_session(steps))
        outputs.append(json.loads(run("fit", path, *WINDOW, "--ledger", ledger).out)["messages"])
    assert outputs[1][: len(outputs[0])] == outputs[0]
    assert len(Ledger.load(json.loads(ledger.read_text())).cuts) == 1
    alone = json.loads(run("fit", saved(tmp_path, long_session(13)), *WINDOW).out)["messages"]
    assert alone[: len(outputs[0])] != outputs[0]


def test_the_ledger_in_the_file_is_the_one_of_the_request(tmp_path: Path) -> None:
    request = long_session(12)
    run("fit", saved(tmp_path, request), "--ledger", tmp_path / "ledger.json")
    written = Ledger.load(json.loads((tmp_path / "ledger.json").read_text()))
    assert written == fit_request(request).ledger


def test_a_ledger_is_replaced_in_place_with_its_rights_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    link.symlink_to(real)
    run("fit", saved(tmp_path, SHORT), "--ledger", link)
    real.chmod(0o640)
    first = real.read_text()
    run("fit", saved(tmp_path, LONGER), "--ledger", link)
    assert real.read_text() != first
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.json", "real.json", "request.json"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "it is empty; give one JSON object"),
        ("{", "expecting property name enclosed in double quotes; give JSON"),
        ("[]", "it is not a ledger: version None; give a ledger that lamina wrote, or another name"),
        ('{"version": 99}', "it is not a ledger: version 99; "),
        ('{"version": 2, "lines": 3}', "it is not a ledger: Expected `object`, got `int`"),
    ],
)
def test_a_broken_ledger_is_named_and_left_as_it_is(tmp_path: Path, content: str, said: str) -> None:
    ledger = tmp_path / "ledger.json"
    ledger.write_text(content)
    done = run("fit", saved(tmp_path, SHORT), "--ledger", ledger)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"lamina: {ledger}")
    assert said in done.err
    assert done.err.count("\n") == 1
    assert ledger.read_text() == content


def test_a_ledger_that_cannot_be_written_means_that_no_request_is_printed(tmp_path: Path) -> None:
    for path, problem in (
        (tmp_path / "missing" / "ledger.json", "it cannot be written: No such file or directory"),
        (saved(tmp_path, SHORT) / "ledger.json", "it cannot be written: Not a directory"),
        (tmp_path, "it is a folder"),
    ):
        done = run("fit", saved(tmp_path, SHORT), "--ledger", path)
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith(f"lamina: {path}: {problem}; ")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_to_is_named(tmp_path: Path) -> None:
    path = saved(tmp_path, SHORT)
    (tmp_path / "shut").mkdir(mode=0o500)
    done = run("fit", path, "--ledger", tmp_path / "shut" / "ledger.json")
    assert (done.code, done.out) == (2, "")
    assert "it cannot be written: Permission denied" in done.err


def test_a_window_that_is_too_small_says_what_is_in_the_way(tmp_path: Path) -> None:
    done = run("fit", saved(tmp_path, SHORT), "--window", "10", "--ledger", tmp_path / "ledger.json")
    assert (done.code, done.out) == (3, "")
    assert done.err.startswith("lamina: the smallest possible request has 18 tokens, and 9 are allowed; ")
    assert not (tmp_path / "ledger.json").exists()


def test_a_request_that_nobody_can_mend_is_bad_input(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    path = saved(tmp_path, {"model": "claude-opus-4-8", "max_tokens": 9, "messages": messages})
    done = run("fit", path, "--ledger", tmp_path / "ledger.json")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(
        "lamina: messages[1] ('a'): this model does not support assistant message prefill"
    )
    assert not (tmp_path / "ledger.json").exists()
    error = json.loads(run("fit", path, "--json").out)["error"]
    assert (error["kind"], error["violations"]) == (
        "invalid_request",
        [{"rule": "ends_with_user", "place": "messages[1]"}],
    )


def test_errors_are_json_too_where_json_was_asked_for(tmp_path: Path) -> None:
    error = json.loads(run("fit", saved(tmp_path, SHORT), "--window", "10", "--json").out)["error"]
    assert (error["kind"], error["floor"], error["room"]) == ("budget_exceeded", 18, 9)
    error = json.loads(run("fit", tmp_path / "missing", "--json").out)["error"]
    assert (error["kind"], error["problem"]) == ("bad_input", "there is no such file")


def test_a_model_that_nobody_knows_needs_a_window(tmp_path: Path) -> None:
    path = saved(tmp_path, {**SHORT, "model": "my-own"})
    done = run("fit", path)
    assert done == (2, "", "lamina: model: unknown model 'my-own'; give its context window: --window N\n")
    assert run("fit", path, "--window", "2000").code == 0


def test_letters_of_every_script_come_out_as_they_are(tmp_path: Path) -> None:
    request = {"model": "gpt-5", "messages": [{"role": "user", "content": "Grüße, 世界 🌍"}]}
    assert "Grüße, 世界 🌍" in run("fit", saved(tmp_path, request)).out


def test_half_of_a_surrogate_pair_comes_out_as_the_escape_that_it_was() -> None:
    text = '{"model": "gpt-5", "user": "\\ud800", "messages": [{"role": "user", "content": "é"}]}'
    done = run("fit", "-", given=text.encode())
    assert done.code == 0
    assert json.loads(done.out) == json.loads(text)


def test_a_request_goes_to_another_dialect_and_says_what_stays_behind(tmp_path: Path) -> None:
    request = {"model": "gpt-5", "messages": [{"role": "user", "content": "hi"}], "logit_bias": {"1": 2}}
    done = run("fit", saved(tmp_path, request), "--to", "gemini", "--model", "gemini-3-pro")
    contents = [{"role": "user", "parts": [{"text": "hi"}]}]
    assert json.loads(done.out) == {"model": "gemini-3-pro", "contents": contents, "config": {}}
    assert "without logit_bias: gemini has no words for that" in done.err


def test_markers_are_planned_unless_the_request_brings_its_own(tmp_path: Path) -> None:
    request = {"model": "claude-opus-5", "max_tokens": 9, "system": "Be brief. " * 400,
               "messages": [{"role": "user", "content": "hi"}]}  # fmt: skip
    path = saved(tmp_path, request)
    assert run("fit", path).out.count("cache_control") == 2
    marked = saved(tmp_path, request | {"cache_control": {"type": "ephemeral"}})
    assert run("fit", marked).out.count("cache_control") == 1


def test_rules_for_single_tools_are_given_by_name(tmp_path: Path) -> None:
    path = saved(tmp_path, long_session(12))
    plain, whole = (
        json.loads(run("fit", path, *WINDOW, *rule, "--json").out)["manifest"]["tokens"]
        for rule in ((), ("--tool", "read_file=whole"))
    )
    assert whole > plain
    for rule, problem in (
        ("run=shrot", "the rule of the tool 'run' is 'shrot'; give"),
        ("run", "not like grep=short"),
    ):
        done = run("fit", path, *WINDOW, "--tool", rule)
        assert done.code == 2
        assert problem in done.err
