"""`python -m tools.clients [NAME...]`: run clients through `lamina run`, and print a table.

Each client must be in .clients/NAME (`sh tools/clients.sh NAME`). The status is 1 if a figure is not as it
should be. `--keep FOLDER` leaves what was recorded there; it holds the prompts of the clients' makers.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tools.clients.measures import SessionMeasures, measure_session
from tools.clients.recorder import Recorder, run_recorder
from tools.clients.rows import TRIALS, ClientTrial, Phase, write_prompts
from tools.clients.upstream import AFTER_STEPS, DONE, Arrived, ScriptedUpstream, read_turns, serve_upstream

ROOT = Path(__file__).resolve().parent.parent.parent
GATEWAY = b"lamina.gateway.supervised"
PATIENCE = 1_800
"""Seconds that one run of a client may take."""


class TriedClient(NamedTuple):
    """The figures of one client: its version, how its runs ended, and how often its gateway was killed."""

    trial: ClientTrial
    version: str
    ended: str
    kills: int
    seconds: float
    measures: SessionMeasures

    @property
    def is_good(self) -> bool:
        return self.ended == "all" and self.measures.is_good


def main() -> int:
    arguments = read_arguments()
    tried: list[TriedClient] = []
    missing: list[str] = []
    for name in arguments.names or TRIALS:
        trial = TRIALS[name]
        if not trial.program.exists():
            missing.append(f"{trial.title} is not in {trial.program.parent}: sh tools/clients.sh {name}")
            continue
        tried.append(try_client(trial, arguments))
        print(write_row(tried[-1]), file=sys.stderr, flush=True)
    print(write_table(tried))
    for line in missing:
        print(line, file=sys.stderr)
    return int(bool(missing) or not all(one.is_good for one in tried))


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="clients", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*TRIALS, []], metavar="NAME")
    parser.add_argument("--turns", type=int, default=60, help="calls of the client's shell in its first run")
    parser.add_argument("--window", type=int, default=64_000)
    parser.add_argument("--size", type=int, default=20_000, help="bytes that each of these calls prints")
    parser.add_argument("--kills", type=int, default=10, help="how often the gateway is killed")
    parser.add_argument("--keep", help="a folder for logs and recorded requests")
    return parser.parse_args()


def try_client(trial: ClientTrial, arguments: argparse.Namespace) -> TriedClient:
    """Run a client: a long turn, a resumed one, and a compaction where it has one."""
    turns = arguments.turns
    upstream = ScriptedUpstream(
        recall_at=frozenset(range(turns // 3, turns, max(turns // 6, 1))),
        agent_at=min(4, turns),
        bytes_per_step=arguments.size,
    )
    phases = [Phase("first", trial.first, turns), Phase("again", trial.again, turns + 3, turns)]
    if trial.compact:
        phases.append(Phase("compact", trial.compact, turns + 3))
        phases.append(Phase("after", trial.again, AFTER_STEPS + 2))
    began = time.monotonic()
    with open_folder(arguments.keep, trial) as folder, serve_upstream(upstream), run_recorder() as recorder:
        killer = Killer(turns, arguments.kills)
        upstream.before_answer = killer.kill_at
        stage = Stage(folder, upstream, recorder, killer, arguments.window)
        ended: list[str] = []
        for phase in phases:
            upstream.limit = phase.steps
            ended.append(run_phase(trial, phase, stage))
        events = read_log(folder / "gateway.db.requests.jsonl")
        write_records(folder, upstream, recorder)
        measures = measure_session(recorder.recorded, upstream.arrived, events)
    wrong = [text for text in ended if text]
    return TriedClient(
        trial,
        read_version(trial),
        "; ".join(wrong) or "all",
        killer.killed,
        time.monotonic() - began,
        measures,
    )


class Killer:
    """Kills the gateway while the upstream answers, spread over the first run.

    It spares a request with a recall in it: the client has seen the beginning of that answer. Claude Code
    gives up if the rest does not come, whoever it speaks to.
    """

    def __init__(self, turns: int, kills: int) -> None:
        step = max(turns // max(kills, 1), 1)
        self._moments = [3 + step * number for number in range(kills)]
        self._requests = 0
        self.killed = 0
        self.parent = 0

    def kill_at(self, arrived: Arrived) -> None:
        self._requests += 1
        if not self._moments or self._requests < self._moments[0] or not self.parent:
            return
        if "call_recall_" in json.dumps(read_turns(arrived.request)[-4:]):
            return
        self._moments.pop(0)
        for pid in find_gateways(self.parent):
            os.kill(pid, signal.SIGKILL)
            self.killed += 1
            return


def find_gateways(parent: int) -> Iterator[int]:
    """The processes that serve under one `lamina run`, the one with most work done first."""
    gateways: list[tuple[int, int]] = []
    for process in Path("/proc").iterdir():
        try:
            if GATEWAY not in (process / "cmdline").read_bytes():
                continue
            fields = (process / "stat").read_text().rpartition(") ")[2].split(" ")
            sockets = sum("socket:" in str(link.readlink()) for link in (process / "fd").iterdir())
        except OSError:
            continue
        if int(fields[1]) == parent:
            gateways.append((sockets, int(process.name)))
    for _, pid in sorted(gateways, reverse=True):
        yield pid


class Stage(NamedTuple):
    """Where a client is run: its folder, and what stands around its gateway."""

    folder: Path
    upstream: ScriptedUpstream
    recorder: Recorder
    killer: Killer
    window: int


def run_phase(trial: ClientTrial, phase: Phase, stage: Stage) -> str:
    """Run a client once. Returns what was wrong, or ""."""
    folder = stage.folder
    wrapper = folder / "bin" / trial.command
    write_wrapper(wrapper, stage.recorder, trial)
    gateway = ["--window", str(stage.window), "--store", str(folder / "gateway.db")]
    command = [sys.executable, "-m", "lamina", "run", *gateway, "--", str(wrapper), *phase.arguments]
    output = folder / f"{phase.name}.txt"
    prompts = folder / f"{phase.name}-prompts.txt"
    prompts.write_text(write_prompts(phase, stage.upstream.write_command) if trial.is_prompted else "")
    with output.open("wb") as file, prompts.open("rb") as standard_input:
        process = subprocess.Popen(
            command,
            cwd=folder / "project",
            env=make_environment(trial, folder, stage.upstream),
            stdin=standard_input,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
        stage.killer.parent = process.pid
        try:
            status = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait(60)
            return f"{phase.name}: not done after {PATIENCE} s"
    if status:
        return f"{phase.name}: status {status}"
    if phase.name != "compact" and f"{DONE} {phase.steps}" not in output.read_text("utf-8", "replace"):
        return f"{phase.name}: the last answer is missing"
    return ""


def write_wrapper(wrapper: Path, recorder: Recorder, trial: ClientTrial) -> None:
    wrapper.parent.mkdir(exist_ok=True)
    program = (ROOT / trial.program).absolute()
    wrapper.write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -m tools.clients.pointed {recorder.url} "{program}" "$@"\n'
    )
    wrapper.chmod(0o755)


def make_environment(trial: ClientTrial, folder: Path, upstream: ScriptedUpstream) -> dict[str, str]:
    """An environment with nothing of the user's own: no keys, no settings, no proxy."""
    home = folder / "home"
    for name, text in trial.files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / ".local/share"),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "UPSTREAM": upstream.url,
        trial.variable: f"{upstream.url}{trial.path}",
        **trial.environment,
    }


@contextmanager
def open_folder(keep: str | None, trial: ClientTrial) -> Iterator[Path]:
    """A folder with an empty project and an empty home."""
    if keep is None:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
            yield make_folders(Path(name))
        return
    folder = Path(keep).absolute() / trial.command
    folder.mkdir(parents=True)
    yield make_folders(folder)


def make_folders(folder: Path) -> Path:
    (folder / "home").mkdir()
    (folder / "project").mkdir()
    (folder / "project" / "README.md").write_text("# A project\n")
    return folder


def read_log(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text("utf-8", "replace").split("\n")
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


def write_records(folder: Path, upstream: ScriptedUpstream, recorder: Recorder) -> None:
    """Write both sides of the gateway, one JSON object to a line."""
    with (folder / "arrived.jsonl").open("w") as file:
        for one in upstream.arrived:
            line = {"label": one.label, "recalls": one.recalls, "violations": one.violations}
            file.write(json.dumps({**line, "request": one.request}) + "\n")
    with (folder / "sent.jsonl").open("w") as file:
        for sent in recorder.recorded:
            line = {"path": sent.path, "status": sent.status, "outcome": sent.outcome}
            body = sent.body.decode("utf-8", "replace")
            answer = sent.answer.decode("utf-8", "replace")
            file.write(json.dumps({**line, "body": body, "answer": answer}) + "\n")


def read_version(trial: ClientTrial) -> str:
    done = subprocess.run(
        [str(ROOT / trial.program), "--version"], capture_output=True, text=True, check=False
    )
    words = [word for word in done.stdout.split() if word[:1].isdigit()]
    return words[0] if words else "?"


COLUMNS = (
    "client",
    "runs that ended well",
    "kills",
    "requests",
    "identical before a cut",
    "cuts",
    "upstream 4xx",
    "of the client's own",
    "all messages kept between cuts",
    "conversations",
    "recalls answered",
    "prefix kept after a recall",
    "valid without the gateway",
    "no trace of a recall",
)


def write_table(tried: list[TriedClient]) -> str:
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---|---|" + "--:|" * (len(COLUMNS) - 2)]
    lines += [write_row(one) for one in tried]
    return "\n".join(lines)


def write_row(one: TriedClient) -> str:
    measures = one.measures
    cells = (
        f"{one.trial.title} {one.version}",
        one.ended,
        one.kills,
        measures.requests,
        measures.identical,
        measures.cuts,
        measures.refused,
        measures.refused_directly,
        measures.kept,
        measures.told_apart,
        measures.recalls,
        measures.kept_after_recall,
        measures.valid_directly,
        measures.hidden,
    )
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


if __name__ == "__main__":
    sys.exit(main())
