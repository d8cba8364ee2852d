"""The parts of the proof: which benchmark each is, where its data comes from, and its windows."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from bench.proof.gold_paths import convert_tau, read_gold_calls, read_gold_games
from bench.proof.memory_talks import convert_locomo, convert_long_mem_eval, read_bfcl_memory, read_evidence
from bench.proof.tasks import Task
from bench.proof.variables import make_tasks
from lamina.errors import BadInput

DATA = Path("build/proof")
"""Where data is looked for, unless `--data` names another folder. It is never committed."""

BFCL = "bfcl-eval==2026.3.23"
SCIENCE_WORLD = "scienceworld==1.2.3"
RECORDERS = Path(__file__).resolve().parent / "recorders"


NOTHING = "nothing"
AS_LINES = "put its conversations there as JSON lines, as bench/proof/memory_talks.py says"


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One benchmark. `paths` are what it reads, relative to the folder of the data.

    `tuned_on` says what of lamina was chosen with this data in view. `pressed`: only tasks count whose
    conversation passes the trigger of the window. The others are sent whole by every policy.
    """

    name: str
    title: str
    tuned_on: str
    windows: tuple[int, ...]
    read: Callable[[Path], Iterable[Task]]
    paths: tuple[str, ...] = ()
    recipe: str = ""
    pressed: bool = True

    def tasks(self, folder: Path) -> Iterator[Task]:
        """The tasks of a part. Raises BadInput, with the recipe, if its data is not there."""
        if not self.paths:
            yield from self.read(folder)
            return
        yield from self.read(self.find_data(folder))

    def find_data(self, folder: Path) -> Path:
        """The file or folder that the part reads. Raises BadInput, with the recipe, if it is not there."""
        for path in self.paths:
            if (folder / path).exists():
                return folder / path
        problem = f"there is no {' or '.join(self.paths)} in {str(folder)!r}"
        raise BadInput(problem, place=self.name, hint=self.recipe)

    def data_version(self, folder: Path) -> str:
        """Where the data comes from, with a digest of its file: others can see that they have the same."""
        if not self.paths:
            return "made by bench/proof, seeds 0 to 39"
        path = self.find_data(folder)
        if path.is_dir():
            return BFCL
        return f"{path.name}, SHA-256 {hashlib.sha256(path.read_bytes()).hexdigest()[:12]}"


PARTS = {
    part.name: part
    for part in (
        Part(
            name="variables",
            title="variable tracking in turns, made up here in the manner of RULER",
            tuned_on="the line that digests have for facts of results was made with these tasks in view",
            windows=(2_000, 4_000, 8_000),
            read=lambda _: make_tasks(),
        ),
        Part(
            name="bfcl-memory",
            title="BFCL v4 memory: exact answers in sight when the question is asked",
            tuned_on="the choice of sentences in digests, and reminders, were tuned on these very questions",
            windows=(4_000, 8_000, 16_000),
            read=read_bfcl_memory,
            paths=("bfcl/bfcl_eval/data",),
            recipe="run `python -m bench.proof get bfcl` (2 MB from PyPI)",
            pressed=False,
        ),
        Part(
            name="bfcl-calls",
            title="BFCL v4 multi-turn, long context: what the gold calls need is in sight",
            tuned_on=NOTHING,
            windows=(2_000, 4_000),
            read=read_gold_calls,
            paths=("bfcl-calls.jsonl",),
            recipe="run `python -m bench.proof get bfcl-calls` (plays the gold calls with BFCL's own tools)",
        ),
        Part(
            name="science-world",
            title="ScienceWorld: what the actions of the gold path name is in sight",
            tuned_on=NOTHING,
            windows=(1_000, 2_000, 4_000),
            read=read_gold_games,
            paths=("science-world.jsonl",),
            recipe="run `python -m bench.proof get science-world` (it needs Java; plays 3 variations a task)",
        ),
        Part(
            name="tau",
            title="τ-bench, airline: what the calls of gpt-4o took from the talk is in sight",
            tuned_on=NOTHING,
            windows=(2_000, 4_000),
            read=read_gold_calls,
            paths=("tau.jsonl",),
            recipe="clone sierra-research/tau-bench from GitHub, then `python -m bench.proof get "
            ".../historical_trajectories/gpt-4o-airline.json`",
        ),
        Part(
            name="beam-128k",
            title="BEAM 128k: the messages that its questions rest on are in sight when they are asked",
            tuned_on="digests were developed on these ten talks, reminders were not",
            windows=(16_000, 32_000),
            read=read_evidence,
            paths=("beam-100k.jsonl.zst", "beam-100k.jsonl"),
            recipe=AS_LINES,
        ),
        Part(
            name="beam-500k",
            title="BEAM 500k: the same, in talks of 500,000 tokens",
            tuned_on="nothing; digests were developed on shorter talks of BEAM",
            windows=(32_000, 64_000),
            read=read_evidence,
            paths=("beam-500k.jsonl.zst", "beam-500k.jsonl"),
            recipe=AS_LINES,
        ),
        Part(
            name="long-mem-eval",
            title="LongMemEval: the turns that have the answer are in sight when the question is asked",
            tuned_on=NOTHING,
            windows=(16_000, 32_000),
            read=read_evidence,
            paths=("long-mem-eval.jsonl",),
            recipe="download longmemeval_s.json from its authors, then `python -m bench.proof get "
            "longmemeval_s.json`",
        ),
        Part(
            name="locomo",
            title="LoCoMo: the messages that its questions rest on are in sight when they are asked",
            tuned_on="digests were developed on these five talks, reminders on 26, 41 and 43 of them",
            windows=(4_000, 8_000, 16_000),
            read=read_evidence,
            paths=("locomo.jsonl.zst", "locomo.jsonl"),
            recipe="download locomo10.json from its authors, then `python -m bench.proof get locomo10.json`",
        ),
    )
}


def get_data(names: Iterable[str], folder: Path) -> None:
    """Fetch the data of these parts, or convert a file that its authors publish."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        path = Path(name)
        match path.name:
            case "bfcl":
                _get_bfcl(folder)
            case "bfcl-calls":
                _get_bfcl(folder)
                _record(folder, "bfcl_calls.py", ["mpmath"], [str(folder / "bfcl")], "bfcl-calls.jsonl")
            case "science-world":
                if shutil.which("java") is None:
                    raise BadInput("java is not there", place=name, hint="install a Java runtime")
                _record(folder, "science_games.py", [SCIENCE_WORLD], [], "science-world.jsonl")
            case "locomo10.json":
                _write_lines(convert_locomo(path), folder / "locomo.jsonl")
            case "longmemeval_s.json":
                _write_lines(convert_long_mem_eval(path), folder / "long-mem-eval.jsonl")
            case "gpt-4o-airline.json":
                _write_lines(convert_tau(path), folder / "tau.jsonl")
            case _:
                hint = (
                    "it is one of bfcl, bfcl-calls, science-world, or a path of locomo10.json, "
                    "longmemeval_s.json or gpt-4o-airline.json"
                )
                raise BadInput(repr(name), place="get", hint=hint)


def _get_bfcl(folder: Path) -> None:
    target = folder / "bfcl"
    if target.exists():
        return
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), BFCL]
    subprocess.run(command, check=True)
    (wheel,) = folder.glob("bfcl_eval-*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(target)
    print(f"{BFCL} is in {target}")


def _record(folder: Path, recorder: str, packages: list[str], arguments: list[str], out: str) -> None:
    """Run a recorder in an environment of its own: what it needs is nothing that lamina should have."""
    home = folder / f"venv-{recorder.removesuffix('.py')}"
    python = home / "bin" / "python"
    if not python.exists():
        venv.create(home, with_pip=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True)
    part = folder / f"{out}.part"
    subprocess.run([str(python), "-P", str(RECORDERS / recorder), *arguments, str(part)], check=True)
    part.replace(folder / out)


def _write_lines(rows: Iterable[dict[str, Any]], out: Path) -> None:
    lines = [msgspec.json.encode(row) for row in rows]
    out.write_bytes(b"\n".join(lines) + b"\n")
    print(f"{len(lines)} conversations in {out}")
