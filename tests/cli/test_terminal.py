"""How commands look at a terminal: their width, their colours, and help for a mistyped word."""

from __future__ import annotations

import io
import shutil
import subprocess

import pytest

from lamina.cli import COMMANDS, GROUPS, demo
from lamina.cli.output import paint, shows_colour
from tests.cli.running import run


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_eighty_columns(command: str) -> None:
    words = [command, "--help"] if command else ["--help"]
    ran = run(*words)
    assert ran.code == 0
    assert [line for line in ran.out.splitlines() if len(line) > 80] == []


def test_every_command_is_in_one_group() -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(COMMANDS)
    assert all(f"\n{title}:\n" in run("--help").out for title in GROUPS)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["csot"], "did you mean cost"),
        (["log", "--onec"], "did you mean --once"),
        (["cost", "--tabel", "x"], "did you mean --table"),
    ],
)
def test_a_mistyped_word_is_met_with_the_nearest_one(words: list[str], meant: str) -> None:
    ran = run(*words)
    assert ran.code == 2
    assert meant in ran.err
    assert len(ran.err.splitlines()) == 1


def test_a_word_like_no_other_gets_the_list() -> None:
    assert "use one of demo, cost" in run("xyzzy").err


@pytest.mark.parametrize(
    ("environment", "is_coloured"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "xterm", "NO_COLOR": ""}, True),  # an empty one asks for nothing
        ({"TERM": "dumb"}, False),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_colour_is_for_terminals_that_want_it(*, environment: dict[str, str], is_coloured: bool) -> None:
    assert shows_colour(Terminal(), environment) == is_coloured


def test_a_pipe_gets_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert paint("lost", "bad", io.StringIO()) == "lost"


@pytest.mark.parametrize("command", [["doctor"], ["demo", "--window", "12000"]])
def test_colour_changes_nothing_but_the_colour(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "TURNS", 2)  # a short session is as colourful
    monkeypatch.setenv("NO_COLOR", "1")
    plain = run(*command).out
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("FORCE_COLOR", "1")
    coloured = run(*command).out
    assert "\x1b[" not in plain
    assert "\x1b[32m" in coloured
    for code in ("32", "31", "33", "2", "1", "0"):
        coloured = coloured.replace(f"\x1b[{code}m", "")
    assert coloured == plain


@pytest.mark.parametrize(
    ("line", "words"), [("sto", "store"), ("fit --exp", "--explain"), ("store era", "erase")]
)
def test_a_shell_completes_commands_options_and_actions(line: str, words: str) -> None:
    script = run("--completion", "bash").out
    typed = ["lamina", *line.split(" ")]
    array = " ".join(f"'{word}'" for word in typed)
    script += f"COMP_WORDS=({array}); COMP_CWORD={len(typed) - 1}; _lamina; echo ${{COMPREPLY[@]}}"
    shell = shutil.which("bash")
    if shell is None:
        pytest.skip("bash is not installed")
    ran = subprocess.run([shell, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == [words]


def test_every_shell_has_a_completion_and_others_are_refused() -> None:
    assert run("--completion", "zsh").out.startswith("autoload")
    assert "__fish_seen_subcommand_from store' -a 'copy export" in run("--completion", "fish").out
    assert run("--completion", "dash").code == 2
