"""What becomes of output that nobody reads, that cannot be written, or that a terminal cannot show."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path

import pytest

from lamina.cli.output import progress
from tests.cli.running import SHORT, long_session, saved, shell


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    saved(tmp_path, long_session(200))
    for command in ("fit request.json --explain", "fit request.json --json"):
        done = shell(
            f"lamina {command} 2>err | head -c 1 >/dev/null; echo ${{PIPESTATUS[0]}}; cat err >&2", tmp_path
        )
        assert done.out in ("141\n", "0\n")
        assert "Traceback" not in done.err
        assert "BrokenPipe" not in done.err


def test_output_to_a_closed_pipe_ends_quietly(tmp_path: Path) -> None:
    saved(tmp_path, SHORT)
    done = shell("(sleep 1; lamina fit request.json --explain; echo $? >code) | true; cat code", tmp_path)
    assert (done.out, done.err) == ("141\n", "")


def test_a_closed_output_is_an_error(tmp_path: Path) -> None:
    saved(tmp_path, SHORT)
    assert shell("lamina fit request.json >&-", tmp_path) == (2, "", "lamina: output: it is closed\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("command", ["fit request.json", "--help"])
def test_output_that_cannot_be_written_is_an_error(tmp_path: Path, command: str) -> None:
    saved(tmp_path, SHORT)
    done = shell(f"lamina {command} >/dev/full", tmp_path)
    assert done.code == 2
    assert done.err.splitlines()[-1] == "lamina: output: No space left on device"
    assert "Traceback" not in done.err


def test_closed_remarks_do_not_get_into_the_output(tmp_path: Path) -> None:
    saved(tmp_path, SHORT)
    done = shell("lamina fit request.json 2>&-", tmp_path)
    assert (done.code, json.loads(done.out), done.err) == (0, SHORT, "")


def test_a_closed_input_is_named(tmp_path: Path) -> None:
    done = shell("lamina fit - <&-", tmp_path)
    assert done == (2, "", "lamina: stdin: it is closed; pipe a request into the command\n")


def test_json_is_utf_8_and_tables_are_readable_whatever_the_terminal_speaks(tmp_path: Path) -> None:
    request = {"messages": [{"role": "user", "content": "é", "name": "n"}], "model": "gpt-5", "user": "世"}
    saved(tmp_path, request)
    done = shell("export PYTHONIOENCODING=latin-1; lamina fit request.json 2>/dev/null", tmp_path)
    assert json.loads(done.out) == request
    done = shell("export PYTHONIOENCODING=ascii; lamina fit 世.json --check", tmp_path)
    assert (done.code, done.err) == (2, "lamina: \\u4e16.json: there is no such file; check the path\n")


def test_the_command_is_installed_under_its_name(tmp_path: Path) -> None:
    project = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert '[project.scripts]\nlamina = "lamina.cli:main"\n' in project
    assert shell("lamina --version", tmp_path).code == 0


def test_an_interrupt_ends_quietly(tmp_path: Path) -> None:
    done = shell(
        "mkfifo wait; set -m; lamina fit - <wait & exec 3>wait; sleep 4; kill -INT %1; wait %1; echo $?",
        tmp_path,
    )
    assert done.out.splitlines()[-1] == "130"
    assert "Traceback" not in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["wait"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_whoever_waits_at_a_terminal_is_told_what_for(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("lamina.cli.output.PATIENCE", 0.01)
    monkeypatch.setattr("sys.stderr", terminal)
    with progress("fitting a.json"):
        while "2 s" not in terminal.getvalue():
            time.sleep(0.01)
    assert terminal.getvalue().startswith("\rfitting a.json, 1 s\rfitting a.json, 2 s")
    assert terminal.getvalue().endswith(" \r")


def test_what_is_quick_or_goes_to_a_file_says_nothing_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, patience in ((Terminal(), 60.0), (io.StringIO(), 0.0)):
        monkeypatch.setattr("lamina.cli.output.PATIENCE", patience)
        monkeypatch.setattr("sys.stderr", stream)
        with progress("fitting a.json"):
            time.sleep(0.02)
        assert stream.getvalue() == ""
