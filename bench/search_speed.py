"""How long an index takes to build, to ask and to add to, at 10,000 to 1,000,000 made-up chunks.

    python bench/search_speed.py                                  words, to 1,000,000
    python bench/search_speed.py --vectors                        and hybrid, to 100,000
    python bench/search_speed.py --postgres --vectors --most 100000   in a PostgreSQL server of its own
    python bench/search_speed.py --quick                          a second or two, to see that it works

Times are milliseconds of this process's processor, all threads together (with PostgreSQL, whose work is
another process's, they say little), and of the clock, which has all that the machine does besides. `p50` and
`p95` are of 100 questions of five words, `add 1` of 50 single chunks, each found at once, by the clock.
The texts are 30 words by Zipf's law; a question has none of the 50 commonest. Vectors are made up, of
384 numbers: what an embedder takes for a question is not in these times.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `bench`, however this is started

from bench.samples import QUICK_HELP
from lamina.context.search.chunks import Chunk
from lamina.context.search.index import Embedder, Index, open_index
from lamina.context.search.postgres import open_postgres_index
from tests.servers.postgres import carried, postgres

SIZES = (10_000, 100_000, 1_000_000)
QUICK_SIZES = (1_000,)
MOST_HYBRID = 100_000
COMMON = 50


class Times(NamedTuple):
    """Seconds to build; milliseconds to ask, of the processor and of the clock, and to add one chunk."""

    build: float
    processor_p50: float
    processor_p95: float
    clock_p50: float
    clock_p95: float
    add: float
    megabytes: float | None = None

    def __str__(self) -> str:
        processor = f"{self.processor_p50:13.2f} {self.processor_p95:6.1f}"
        clock = f"{self.clock_p50:9.2f} {self.clock_p95:6.1f}"
        size = "" if self.megabytes is None else f" {self.megabytes:6.0f}"
        return f"{self.build:8.2f} {processor} {clock} {self.add:6.2f}{size}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--vectors", action="store_true", help="the hybrid too")
    parser.add_argument("--postgres", action="store_true", help="PostgreSQL instead of SQLite")
    parser.add_argument("--most", type=int, default=SIZES[-1], help="chunks at most")
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    parser.add_argument("--quick", action="store_true", help=QUICK_HELP)
    given = parser.parse_args()
    figures: list[dict[str, Any]] = []
    sizes = QUICK_SIZES if given.quick else [size for size in SIZES if size <= given.most]
    asked = f"{'processor p50':>13} {'p95':>6} {'clock p50':>9} {'p95':>6}"
    print(f"{'chunks':>9} {'':<8} {'build s':>8} {asked} {'add 1':>6} {'MB':>6}")
    for size in sizes:
        for way, embedder in (("words", None), ("hybrid", made_up)):
            if embedder is None or (given.vectors and size <= MOST_HYBRID):
                told = in_postgres(size, embedder) if given.postgres else in_sqlite(size, embedder)
                print(f"{size:>9,} {way:<8}", told, flush=True)
                figures.append({"chunks": size, "way": way, **told._asdict()})
    if given.json:
        given.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def in_sqlite(size: int, embedder: Embedder | None) -> Times:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "index.db"
        told = anyio.run(timed, open_index(path, embedder=embedder), size)
        bytes_kept = sum(one.stat().st_size for one in Path(folder).iterdir())
        return told._replace(megabytes=bytes_kept / 1e6)


def in_postgres(size: int, embedder: Embedder | None) -> Times:
    with postgres(next(iter(carried()), None)) as server:
        opened = partial(open_postgres_index, server.url, workspace="bench")
        return anyio.run(timed, opened(embedder=embedder), size)


async def timed(opened: AbstractAsyncContextManager[Index], size: int) -> Times:
    dice = random.Random(1)  # noqa: S311 - made-up text
    async with opened as index:
        built = 0.0
        for source in range(size // 1_000):
            chunks = [made_chunk(dice) for _ in range(1_000)]
            built += (await took(index.add, f"s{source}", chunks))[1] / 1_000
        asks = [await took(index.query, made_text(dice, 5, above=COMMON)) for _ in range(100)]
        adds = [await took(index.add, "more", [made_chunk(dice)]) for _ in range(50)]
    processor, clock = (sorted(times) for times in zip(*asks, strict=True))
    add = statistics.median(clock_time for _, clock_time in adds)
    return Times(built, processor[49], processor[94], clock[49], clock[94], add)


async def took(work: Callable[..., Any], *values: Any) -> tuple[float, float]:
    """Milliseconds of the processor and of the clock."""
    processor, clock = time.process_time(), time.perf_counter()
    await work(*values)
    return (time.process_time() - processor) * 1_000, (time.perf_counter() - clock) * 1_000


def made_chunk(dice: random.Random) -> Chunk:
    return Chunk(text=made_text(dice, 30), sort="turn", speaker=dice.choice(("Ana", "Ben")))


def made_text(dice: random.Random, size: int, above: int = 1) -> str:
    """Words by Zipf's law, over about 50,000; in a question without the commonest, which are no question."""
    ranks = (int(above * (50_000 / above) ** dice.random()) for _ in range(size))
    return " ".join(map(made_word, ranks))


def made_word(number: int) -> str:
    """Letters only, so that it is not split, and no end that a stemmer would cut."""
    return "".join("bcdfghjkmp"[int(digit)] + "ao"[int(digit) % 2] for digit in str(number)) + "k"


async def made_up(texts: Sequence[str]) -> Sequence[Sequence[float]]:
    """Vectors of the right size without the time that weights would take."""
    import numpy as np  # noqa: PLC0415 - only vectors need it

    seed = sum(map(len, texts))
    made: Any = np.random.default_rng(seed).standard_normal((len(texts), 384))
    return made  # type: ignore[no-any-return]


if __name__ == "__main__":
    main()
