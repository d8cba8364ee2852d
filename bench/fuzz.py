"""The long run of the fuzzer: plays many clients against `fit_request` and says what was wrong.

    python bench/fuzz.py --conversations 10000 --seconds 7200 --jobs 2 --resume fuzz.json
    python bench/fuzz.py --quick                                a run of a few seconds, to see that it works
    python bench/fuzz.py --replay 1234                          what one client did, turn by turn
    python bench/fuzz.py --replay 1234 --shrink valid:A3        a smaller example of that violation
    python bench/fuzz.py --replay 1234 --moves 0,3,7 --show     the requests, too

`--seconds` is CPU time of all processes together. A run that was stopped goes on where it was with the same
`--resume`. What is printed: a table of classes of behaviour and content (a class that was never played is
seen by its zeros), a table of violations, and for each sort of them a shrunk example with the command that
replays it. The exit status is 1 if there were violations. notes/fuzzing.md says what is checked.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `bench`, however this is started

import lamina.fitting
from bench.samples import QUICK_HELP
from tests.fuzzing import (
    Account,
    Script,
    Subject,
    Turn,
    never_played,
    play,
    script_for,
    shrink,
    table,
    turns,
    violations_table,
)
from tests.fuzzing.account import merged, most_common
from tests.fuzzing.oracles import judge

SUBJECT = Subject(fit=lamina.fit_request, memo=lamina.fitting.RequestMemo)

CHUNK = 5
"""Conversations that a process plays before it reports."""

SAVED_EVERY = 20
"""Seconds between two writings of the progress."""

WIDTH = 200
"""Characters of a message that are shown."""


def main() -> int:
    arguments = _arguments()
    if arguments.replay is not None:
        return _replay(arguments)
    account = _run(arguments)
    _report(account, arguments)
    return 1 if account.whole.violations else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--conversations", type=int, default=1000, metavar="N")
    parser.add_argument("--seed", type=int, default=0, help="the first seed; the others follow")
    parser.add_argument("--seconds", type=float, default=7200, help="CPU time, of all processes together")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--resume", type=Path, metavar="FILE", help="progress is kept here")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the account as JSON")
    parser.add_argument("--tries", type=int, default=120, help="conversations played to shrink one example")
    parser.add_argument("--quick", action="store_true", help=QUICK_HELP)
    parser.add_argument("--replay", type=int, metavar="SEED")
    parser.add_argument("--moves", default="", help="with --replay: only these, by number")
    parser.add_argument("--without", default="", help="with --replay: traits that are taken away")
    parser.add_argument("--shrink", default="", metavar="VIOLATION", help="with --replay: shrink it first")
    parser.add_argument("--show", action="store_true", help="with --replay: print the requests")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.conversations = 6
    return arguments


def _run(arguments: argparse.Namespace) -> Account:
    """Play what is not in the file of progress yet."""
    account = _progress(arguments.resume)
    before = account.seconds
    wanted = range(arguments.seed, arguments.seed + arguments.conversations)
    left = [seed for seed in wanted if seed not in account.seeds]
    saved = time.monotonic()
    for part in _played(left, arguments.jobs):
        account = merged((account, part))
        _bar(account, len(wanted))
        if time.monotonic() - saved > SAVED_EVERY:
            _save(account, arguments.resume)
            saved = time.monotonic()
        if account.seconds - before > arguments.seconds:
            break
    print(file=sys.stderr)
    _save(account, arguments.resume)
    return account


def _played(seeds: list[int], jobs: int) -> Iterator[Account]:
    """The accounts of chunks of seeds, as they are done."""
    chunks = iter([seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)])
    if jobs < 2:
        yield from (play_chunk(chunk) for chunk in chunks)
        return
    pool = ProcessPoolExecutor(max_workers=jobs)
    try:
        waiting: set[Future[Account]] = set()
        for chunk in chunks:
            waiting.add(pool.submit(play_chunk, chunk))
            if len(waiting) >= 2 * jobs:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        for future in waiting:
            yield future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def play_chunk(seeds: Iterable[int]) -> Account:
    account = Account()
    for seed in seeds:
        began = time.process_time()
        played = play(script_for(seed), SUBJECT)
        account.add(played, time.process_time() - began)
    return account


def _progress(path: Path | None) -> Account:
    return Account.load(path.read_bytes()) if path is not None and path.exists() else Account()


def _save(account: Account, path: Path | None) -> None:
    if path is None:
        return
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_bytes(account.dump())
    fresh.replace(path)


def _bar(account: Account, wanted: int) -> None:
    whole = account.whole
    found = sum(whole.violations.values())
    print(
        f"\r{whole.conversations:,} of {wanted:,} conversations, {whole.turns:,} turns, "
        f"{found:,} violations, {account.seconds:,.0f} s of CPU",
        end="",
        file=sys.stderr,
        flush=True,
    )


def _report(account: Account, arguments: argparse.Namespace) -> None:
    whole = account.whole
    print(table(account))
    print(
        f"\n{whole.conversations:,} conversations from {len(account.seeds):,} seeds "
        f"({min(account.seeds, default=0)} to {max(account.seeds, default=0)}), {whole.turns:,} turns, "
        f"{account.seconds:,.0f} s of CPU, {account.seconds / max(whole.conversations, 1):.2f} s each"
    )
    empty = never_played(account)
    print(f"classes that were never played: {', '.join(empty) or 'none'}\n")
    if arguments.json is not None:
        arguments.json.write_bytes(account.dump())
    if not whole.violations:
        print("no violations")
        return
    print(violations_table(account))
    for sort, _ in most_common(whole.violations):
        example = account.examples[sort][0]
        smaller = shrink(script_for(example.seed), sort, SUBJECT, tries=arguments.tries)
        print(f"\n{sort}: {example.detail}")
        print(f"  moves: {', '.join(name for _, name in smaller.names)}")
        print(f"  python bench/fuzz.py {smaller} --show", flush=True)


def _replay(arguments: argparse.Namespace) -> int:
    script = script_for(arguments.replay)
    moves = tuple(int(number) for number in arguments.moves.split(",") if number) or script.moves
    without = frozenset(name for name in arguments.without.split(",") if name)
    script = Script(seed=arguments.replay, moves=moves, without=without)
    if arguments.shrink:
        script = shrink(script, arguments.shrink, SUBJECT, tries=arguments.tries)
    print(f"python bench/fuzz.py {script}")
    found = 0
    for turn in turns(script, SUBJECT):
        found += _told(turn, show=arguments.show)
    return 1 if found else 0


def _told(turn: Turn, *, show: bool) -> int:
    """Print one turn; say how many violations it has."""
    settings = turn.settings
    print(
        f"\nturn {turn.number}: {turn.move} | {settings.model}, window {settings.window:,}, "
        f"room {turn.room:,}, counter {turn.counter.name}, breakpoints {settings.breakpoints}"
    )
    for breach in turn.came_breaches:
        print(f"  the client's own request breaks {breach}")
    if show:
        _print_request("came", turn.came_request)
    if turn.outcome.error is not None:
        print(f"  {type(turn.outcome.error).__name__}: {turn.outcome.error}")
    else:
        reasons = [cut["reason"] for cut in turn.new_cuts]
        print(f"  {len(turn.ledger.get('folds', ()))} folds, new cuts: {reasons or 'none'}")
        if show and turn.sent_request == turn.came_request:
            print("  sent as it came")
        elif show:
            _print_request("sent", turn.sent_request)
    violations = judge(turn)
    for violation in violations:
        print(f"  VIOLATION {violation}")
    return len(violations)


def _print_request(name: str, request: dict[str, Any]) -> None:
    listed = next(field for field in ("messages", "input", "contents") if field in request)
    head = {field: value for field, value in request.items() if field != listed}
    print(f"  {name}: {json.dumps(head, ensure_ascii=False)[:WIDTH]}")
    for number, message in enumerate(request[listed]):
        print(f"    {number:>3} {json.dumps(message, ensure_ascii=False)[:WIDTH]}")


if __name__ == "__main__":
    sys.exit(main())
