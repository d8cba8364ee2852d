"""What deferring tools saves on recorded sessions, beside loading all of them and deferring all of them.

    python bench/tools.py LOGS [--catalogue 0,50,200] [--model M] [--json FILE]
    python bench/tools.py --quick

The advice is made from every second session and priced on the others, which it has not seen. `--catalogue`
adds so many made-up tools of about 150 tokens that no session calls, as a few MCP servers would. Prices are
those of each session's own model, in tokens of input at full price.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `bench`, however this is started

from bench.arguments import split_numbers
from bench.samples import QUICK_HELP, sample_sessions
from lamina.replay.tool_advice import ToolSession, advise_sessions, price_deferral, read_tool_sessions
from lamina.replay.traces import read_traces

CATALOGUE_TOKENS = 150
"""Tokens of a made-up definition."""

READ = {"name": "read_file", "description": "Reads a file.", "input_schema": {"type": "object"}}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("logs", nargs="*", help="recorded sessions, as `lamina replay` reads them")
    parser.add_argument("--catalogue", default="0,50,200", help="numbers of made-up tools that are added")
    parser.add_argument("--model", default="", help="count and price as this model")
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    parser.add_argument("--quick", action="store_true", help=QUICK_HELP)
    asked = parser.parse_args()
    if asked.quick:
        with sample_sessions(sessions=4) as path:
            figures = measure([str(path)], [0, 20], asked.model, definitions=[READ])
    elif not asked.logs:
        parser.error("name recorded sessions, or give --quick")
    else:
        figures = measure(asked.logs, split_numbers(asked.catalogue), asked.model)
    if asked.json:
        asked.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def measure(
    logs: Sequence[str], catalogues: Sequence[int], model: str, *, definitions: Sequence[Any] = ()
) -> list[dict[str, Any]]:
    """A row for each size of the catalogue, printed as it is known."""
    sessions, _ = read_tool_sessions(read_traces(logs), definitions=definitions, model=model)
    figures = []
    print(
        f"{'added':>5} {'sessions':>8} {'loaded':>12} {'all deferred':>12} {'advised':>12} {'saved':>7} "
        "searches"
    )
    for added in catalogues:
        row = compare([add_catalogue(session, added) for session in sessions])
        figures.append({"added": added, **row})
        saved = 1 - row["advised"] / row["loaded"] if row["loaded"] else 0.0
        print(
            f"{added:>5} {row['sessions']:>8} {row['loaded']:>12,} {row['all_deferred']:>12,} "
            f"{row['advised']:>12,} {saved:>7.1%} {row['searches']} in {row['requests']:,} requests"
        )
    return figures


def compare(sessions: Sequence[ToolSession]) -> dict[str, int]:
    """The price of three choices on the sessions that the advice was not made from."""
    advice = advise_sessions(sessions[::2])
    unseen = sessions[1::2]
    every_tool = {name for session in unseen for name in session.tokens}
    # A tool that the advice has not seen stays as the client sends it: loaded.
    loaded, _ = price_deferral(unseen, ())
    all_deferred, most_searches = price_deferral(unseen, every_tool)
    advised, searches = price_deferral(unseen, advice.defer)
    return {
        "sessions": len(unseen),
        "requests": sum(session.requests for session in unseen),
        "loaded": loaded,
        "all_deferred": all_deferred,
        "all_deferred_searches": most_searches,
        "advised": advised,
        "searches": searches,
        "deferred_tools": len(advice.defer),
    }


def add_catalogue(session: ToolSession, added: int) -> ToolSession:
    """The session with made-up tools that nobody calls."""
    names = [f"mcp__server_{number % 5}__action_{number}" for number in range(added)]
    return msgspec.structs.replace(
        session,
        tokens=session.tokens | dict.fromkeys(names, CATALOGUE_TOKENS),
        texts=session.texts | {name: name for name in names},
    )


if __name__ == "__main__":
    main()
