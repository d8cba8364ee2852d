"""The command line of the games; the docstring of `bench.proof.games` has examples."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from bench.proof.follow import FULL
from bench.proof.games import __doc__ as description
from bench.proof.games.episodes import Arm

POLICIES = "none,drop_oldest,sliding,clear_then_drop,lamina,lamina+recall"
WINDOW = 4_000


def main() -> int:
    options = _options(sys.argv[1:])
    arms = [Arm(policy=name, window=options.window) for name in options.policies.split(",")]
    if options.job == "table":
        from bench.proof.games.table import print_table  # noqa: PLC0415 - needs no torch

        print_table(options.file, houses=options.houses)
    elif options.job == "script":
        from bench.proof.games.table import play_script  # noqa: PLC0415 - needs no torch

        play_script(options.out, arms=arms, visits=options.visits)
    elif options.job == "train":
        from bench.proof.games.training import train  # noqa: PLC0415 - only with torch

        train(
            options.file,
            options.out,
            seconds=options.seconds,
            window=options.window,
            workers=options.workers,
            seed=options.seed,
            curve=options.curve or options.out.with_suffix(".curve.jsonl"),
        )
    else:
        from bench.proof.games.playing import play  # noqa: PLC0415 - only with torch

        play(
            options.file,
            options.weights,
            options.out,
            arms=arms,
            visits=options.visits,
            seconds=options.seconds,
            workers=options.workers,
        )
    return 0


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.proof.games",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("job", choices=("script", "train", "play", "table"))
    add("file", type=Path, nargs="?", help="the model as GGUF; for `table`, the games that were played")
    add("weights", type=Path, nargs="?", help="for `play`: what `train` wrote")
    add("--out", type=Path, help="where the weights or the games go")
    add("--curve", type=Path, help="where the curve of the training goes")
    add("--policies", default=POLICIES, metavar="P,...", help=f"also {FULL} for the full context")
    add("--window", type=int, default=WINDOW, help=f"tokens (default: {WINDOW})")
    add("--visits", type=int, default=67, help="of three houses each (default: 67)")
    add("--seconds", type=float, default=300.0, help="how long to train or play")
    add("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2), help="processes with games")
    add("--houses", type=int, default=1, help="for `table`: houses of a visit that count (default: 1)")
    add("--seed", type=int, default=1)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
