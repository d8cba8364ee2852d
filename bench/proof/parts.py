"""The parts of the proof: which benchmark each is, where its data comes from, and its windows."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from bench.proof.gold_paths import read_gold_calls, read_gold_games
from bench.proof.memory_talks import read_bfcl_memory, read_evidence
from bench.proof.tasks import Task
from bench.proof.variables import make_tasks
from lamina.errors import BadInput

DATA = Path("build/proof")
"""Where data is looked for, unless `--data` names another folder. It is never committed."""

BFCL = "bfcl-eval==2026.3.23"
SCIENCE_WORLD = "scienceworld==1.2.3"
RECORDERS = Path(__file__).resolve().parent / "recorders"


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One benchmark. `paths` are what it reads, relative to the folder of the data.

    `pressed`: only tasks count whose conversation passes the trigger of the window. The others are sent whole
    by every policy.
    """

    name: str
    title: str
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
        found = [folder / path for path in self.paths if (folder / path).exists()]
        if not found:
            problem = f"there is no {' or '.join(self.paths)} in {str(folder)!r}"
            raise BadInput(problem, place=self.name, hint=self.recipe)
        for path in found:
            yield from self.read(path)


PARTS = {
    part.name: part
    for part in (
        Part(
            name="variables",
            title="variable tracking in turns, made up here in the manner of RULER",
            windows=(2_000, 4_000, 8_000),
            read=lambda _: make_tasks(),
        ),
        Part(
            name="bfcl-memory",
            title="BFCL v4 memory: exact answers in sight at the end of a talk",
            windows=(4_000, 8_000, 16_000),
            read=read_bfcl_memory,
            paths=("bfcl/bfcl_eval/data",),
            recipe="run `python -m bench.proof get bfcl` (2 MB from PyPI)",
            pressed=False,
        ),
        Part(
            name="bfcl-calls",
            title="BFCL v4 multi-turn, long context: what the gold calls need is in sight",
            windows=(2_000, 4_000),
            read=read_gold_calls,
            paths=("bfcl-calls.jsonl",),
            recipe="run `python -m bench.proof get bfcl-calls` (plays the gold calls with BFCL's own tools)",
        ),
        Part(
            name="science-world",
            title="ScienceWorld: what the actions of the gold path name is in sight",
            windows=(1_000, 2_000, 4_000),
            read=read_gold_games,
            paths=("science-world.jsonl",),
            recipe="run `python -m bench.proof get science-world` (it needs Java; plays 3 variations a task)",
        ),
        Part(
            name="beam",
            title="BEAM: the messages that its questions rest on are in sight",
            windows=(16_000, 32_000),
            read=read_evidence,
            paths=("beam-100k.jsonl.zst", "beam-100k.jsonl", "beam-500k.jsonl.zst", "beam-500k.jsonl"),
            recipe="put its conversations there as JSON lines, as bench/proof/memory_talks.py says",
        ),
        Part(
            name="locomo",
            title="LoCoMo: the messages that its questions rest on are in sight",
            windows=(4_000, 8_000, 16_000),
            read=read_evidence,
            paths=("locomo.jsonl.zst", "locomo.jsonl"),
            recipe="download locomo10.json from its authors, then `python -m bench.proof get locomo10.json`",
        ),
    )
}


def get_data(names: Iterable[str], folder: Path) -> None:
    """Fetch the data of these parts, or convert the file `locomo10.json`."""
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
                _convert_locomo(path, folder / "locomo.jsonl")
            case _:
                hint = "it is one of bfcl, bfcl-calls, science-world, or a path of locomo10.json"
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


def _convert_locomo(path: Path, out: Path) -> None:
    from bench.proof.memory_talks import convert_locomo  # noqa: PLC0415 - used here only

    lines = [msgspec.json.encode(row) for row in convert_locomo(path)]
    out.write_bytes(b"\n".join(lines) + b"\n")
    print(f"{len(lines)} conversations in {out}")
