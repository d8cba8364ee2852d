"""Every bench runs in its quick form and writes figures. No figure is judged."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from bench.ablation import CORE, PARTS

BENCH = Path(__file__).resolve().parent.parent / "bench"
PROGRAMS = sorted(
    path.stem for path in BENCH.glob("*.py") if 'if __name__ == "__main__":' in path.read_text("utf-8")
)

QUICKEST = frozenset(("frontier", "search", "store"))
"""The others take seconds even in their quick form, over code that many tests run: for `make seeds`."""

BENCHES = [pytest.param(name, marks=() if name in QUICKEST else pytest.mark.thorough) for name in PROGRAMS]


@pytest.mark.parametrize("name", BENCHES)
def test_a_bench_runs_and_writes_figures(name: str, tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    command = [sys.executable, str(BENCH / f"{name}.py"), "--quick", "--json"]
    command += ["--fit"] if name == "estimate" else [str(file)]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    assert json.loads(done.stdout if name == "estimate" else file.read_text(encoding="utf-8"))


def test_every_part_that_can_be_switched_off_is_there() -> None:
    """Where a part gets another name or goes, bench/ablation.py must hear of it."""
    for name, part in PARTS.items():
        assert [seam.find() for seam in part.seams], name
        assert all((CORE / f"{file}.py").is_file() for file in part.files), name


def test_a_bench_that_needs_sessions_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("policies", "replay", "why_miss"):
        program = str(BENCH / f"{name}.py")
        monkeypatch.setattr(sys, "argv", [program])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(program, run_name="__main__")
        assert (ended.value.code, "--quick" in capsys.readouterr().err) == (2, True), name
