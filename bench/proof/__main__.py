"""The command line of the proof; the docstring of `bench.proof` has examples."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench.arguments import split_list, split_numbers
from bench.proof import __doc__ as description
from bench.proof.follow import FULL, OWN, TaskOutcome, count_all, follow, setting_of_task
from bench.proof.parts import DATA, PARTS, Part, get_data
from bench.proof.rows import ProofRow, list_versions, list_worse, sum_rows, table_text
from bench.proof.tasks import Task
from bench.samples import QUICK_HELP
from lamina.errors import BadInput, LaminaError

POLICIES = "none,drop_oldest,sliding,no_reminders,lamina"
QUICK_TASKS = 2


def main() -> int:
    arguments = sys.argv[1:]
    try:
        if arguments[:1] == ["get"]:
            get_data(arguments[1:], DATA)
            return 0
        if arguments[:1] == ["answers"]:
            from bench.proof.answers import answer_main  # noqa: PLC0415 - only with a model

            return answer_main(arguments[1:])
        return measure(_options(arguments))
    except LaminaError as error:
        print(f"proof: {error}", file=sys.stderr)
        return 2


def measure(options: argparse.Namespace) -> int:
    """Print the tables of every part, what they are of, what is worse, and what could not be measured."""
    began = time.monotonic()
    rows: list[ProofRow] = []
    outcomes: list[TaskOutcome] = []
    missing: list[str] = []
    measured: dict[str, dict[str, str]] = {}
    for name in options.parts or PARTS:
        part = PARTS[name]
        try:
            tasks = list(part.tasks(options.data))
        except BadInput as error:
            missing.append(str(error))
            continue
        tasks = tasks[: options.tasks]
        measured[name] = {
            "what": part.title,
            "data": part.data_version(options.data),
            "tuned on it": part.tuned_on,
        }
        for rules in options.rules:
            rows += measure_part(part, tasks, options, rules, outcomes)
    for problem in missing:
        print(f"\nnot measured: {problem}", file=sys.stderr)
    facts: dict[str, Any] = {
        "versions": list_versions(options.policies),
        "parts": measured,
        "seconds": round(time.monotonic() - began, 1),
        "rows": msgspec.to_builtins(rows),
        "worse": list_worse(rows),
        "missing": missing,
    }
    _print_facts(facts)
    if options.json:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(facts)) + b"\n")
    if options.outcomes:
        options.outcomes.write_bytes(msgspec.json.encode(outcomes))
    return int(bool(options.parts and missing))


def measure_part(
    part: Part,
    tasks: Sequence[Task],
    options: argparse.Namespace,
    rules: str,
    outcomes: list[TaskOutcome],
) -> list[ProofRow]:
    """The rows of one part under one provider's rules; each window's table is printed when it is done."""
    windows = options.windows or part.windows
    rows: list[ProofRow] = []
    for window in windows:
        chosen = [task for task in tasks if task.needs and _counts(part, task, window, rules)]
        if not chosen:
            continue
        of_window: list[TaskOutcome] = []
        policies = list(dict.fromkeys([FULL, *options.policies]))
        for policy in policies:
            for number, task in enumerate(chosen, start=1):
                of_window += follow(task, policy, window, rules).outcomes
                _tell(f"{part.name} {window:,} {policy}: {number} of {len(chosen)}")
        _tell("")
        of_window_rows = sum_rows(part.name, of_window, chosen)
        print(table_text(of_window_rows), flush=True)
        rows += of_window_rows
        outcomes += of_window
    return rows


def _print_facts(facts: dict[str, Any]) -> None:
    """Print what the tables are of, what was tuned on what, and what is worse."""
    for name, part in facts["parts"].items():
        print(f"\n{name}")
        for label, value in part.items():
            print(f"  {label:<18} {value}")
    print("\nWhere lamina is worse:")
    for sentence in facts["worse"] or ["nowhere in these tables"]:
        print(f"  {sentence}")
    print()
    for name, value in facts["versions"].items():
        print(f"{name:<20} {value}")
    print(f"{'seconds':<20} {facts['seconds']}")


def _counts(part: Part, task: Task, window: int, rules: str) -> bool:
    if not part.pressed:
        return True
    return count_all(task) > setting_of_task(task, window, rules).trigger


def _tell(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.proof",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("parts", metavar="PART", nargs="*", help=f"all of them unless told: {', '.join(PARTS)}")
    add("--data", type=Path, default=DATA, metavar="FOLDER", help=f"where the data is (default: {DATA})")
    add("--windows", type=split_numbers, default=[], metavar="N,...", help="instead of those of each part")
    add(
        "--policies",
        type=split_list,
        default=split_list(POLICIES),
        metavar="P,...",
        help="also lamina@memory, clear_then_drop, peer:langchain-trim",
    )
    add("--rules", type=split_list, default=["anthropic"], metavar="R,...", help="whose cache and prices")
    add("--tasks", type=int, default=None, metavar="N", help="only the first N tasks of each part")
    add("--json", type=Path, metavar="FILE", help="write every row, and the versions of everything")
    add("--outcomes", type=Path, metavar="FILE", help="write the outcome of every task, too")
    add("--quick", action="store_true", help=QUICK_HELP)
    options = parser.parse_args(arguments)
    unknown = [name for name in options.parts if name not in PARTS]
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}; there are: {', '.join(PARTS)}")
    if options.quick:
        options.parts, options.windows, options.tasks = ["variables"], [4_000], QUICK_TASKS
        options.policies = [FULL, "sliding", OWN]
    return options


if __name__ == "__main__":
    sys.exit(main())
