"""How well and how fast search finds: beside plain BM25 and vectors alone, in one run.

    python bench/search.py FOLDER                          words only: seconds
    python bench/search.py FOLDER --vectors FILE           with vectors; FILE keeps them for the next run
    python bench/search.py --quick                         a run of a second or two, to see that it works

A folder holds `memory/dev/*.jsonl.zst` (conversations with questions and the turns that answer them) and
`retrieval/dev/*/` (corpus, queries, qrels). Recall is the share of a question's evidence that is found (at 5
of at most 5 pieces, at 10 of at most 10), the mean over questions that have any. `1k` and so on: of all its
evidence, in excerpts of at most so many estimated tokens. Plain BM25 is words in lower case, k1 1.2, b 0.75;
`vectors` are those of the hybrid by themselves. Times are measured by `search_speed.py`. Needs zstandard;
vectors need lamina-context[search].
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import importlib
import io
import json
import math
import re
import statistics
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `bench`, however this is started

from bench.samples import QUICK_HELP, sample_searches
from lamina.context.search import Chunk, Embedder, Hit, SearchLimits, excerpts, local_embedder, open_index
from lamina.context.search.index import find_dates, text_to_embed
from lamina.core.text.estimate import estimate_tokens

BUDGETS = (1_000, 2_000, 4_000)
CUTS = (5, 10)
PIECE = 1_600
DEPTH = 400
WORDS = re.compile(r"\w+")


class Question(NamedTuple):
    text: str
    evidence: frozenset[str]


class Collection(NamedTuple):
    """Documents or turns that are searched together, their names in `place`, and what is asked of them."""

    name: str
    chunks: list[Chunk]
    questions: list[Question]


Figures = dict[str, list[float]]
counted = cache(estimate_tokens)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--vectors", type=Path, help="file that keeps vectors (.npz); without it words only")
    parser.add_argument("--only", default="", help="sets whose name has this")
    parser.add_argument("--most", type=int, default=1_000_000, help="questions of each collection")
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    parser.add_argument("--quick", action="store_true", help=QUICK_HELP)
    given = parser.parse_args()
    if given.quick:
        with sample_searches() as folder:
            given.folder = folder
            figures = anyio.run(quality, given)
    elif given.folder:
        figures = anyio.run(quality, given)
    else:
        parser.error("name a folder, or say --quick")
    if given.json:
        given.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


async def quality(given: argparse.Namespace) -> dict[str, dict[str, dict[str, float]]]:
    """The mean of each figure, by set and way of finding."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    kept = Kept(given.vectors) if given.vectors else None
    head = f"{'set':<12} {'':<14} {'n':>5} {'R@5':>6} {'R@10':>6} {'nDCG':>6}"
    print(head, *(f"{f'{budget // 1000}k':>6}" for budget in BUDGETS))
    for name, make in sets(given.folder):
        if given.only not in name:
            continue
        totals: dict[str, Figures] = collections.defaultdict(lambda: collections.defaultdict(list))
        for one in make():
            short = one._replace(questions=[q for q in one.questions if q.evidence][: given.most])
            await measured(short, kept, totals)
            if kept:
                kept.save()
        found[name] = {}
        for way, figures in totals.items():
            means = {figure: statistics.mean(values) for figure, values in figures.items()}
            found[name][way] = means
            row = [f"{mean:6.3f}" for mean in means.values()]
            print(f"{name:<12} {way:<14} {len(figures['R@5']):>5}", *row, flush=True)
    return found


async def measured(one: Collection, kept: Kept | None, totals: dict[str, Figures]) -> None:
    """Every way of finding, over one collection."""
    plain = bm25([chunk.text for chunk in one.chunks])
    for question in one.questions:
        noted(totals["plain BM25"], question, ranked(one, plain(question.text)))
    async with open_index() as index:
        await index.add(one.name, one.chunks)
        for question in one.questions:
            noted(totals["words"], question, await index.query(question.text, most=DEPTH))
    if kept is None:
        return
    near = await kept.nearest(one.chunks)
    for question in one.questions:
        noted(totals["vectors"], question, ranked(one, await near(question.text)))
    async with open_index(embedder=kept.embed) as index:
        await index.add(one.name, one.chunks)
        for question in one.questions:
            noted(totals["hybrid"], question, await index.query(question.text, most=DEPTH))


def ranked(one: Collection, order: Iterable[int]) -> list[Hit]:
    """What a baseline found, best first, as the index would say it."""
    return [
        Hit(id=at, source=one.name, nth=at, chunk=one.chunks[at], score=1 / (1 + rank))
        for rank, at in enumerate(order)
    ]


def noted(figures: Figures, question: Question, hits: Sequence[Hit]) -> None:
    note(figures, question, list(dict.fromkeys(hit.chunk.place for hit in hits)))
    for budget in BUDGETS:
        limits = SearchLimits(share=1, tokens=budget, most=200, least=0)
        found = excerpts(hits, room=budget, limits=limits, count=counted)
        texts = "\n".join(part.text for one in found for part in one.parts)  # type: ignore[union-attr]
        shown = {hit.chunk.place for hit in hits if hit.chunk.text in texts}
        figures[f"{budget}"].append(len(question.evidence & shown) / len(question.evidence))


def note(figures: Figures, question: Question, ranked: Sequence[str]) -> None:
    for cut in CUTS:
        found = question.evidence & set(ranked[:cut])
        figures[f"R@{cut}"].append(len(found) / min(cut, len(question.evidence)))
    gains = sum(1 / math.log2(at + 2) for at, name in enumerate(ranked[:10]) if name in question.evidence)
    ideal = sum(1 / math.log2(at + 2) for at in range(min(10, len(question.evidence))))
    figures["nDCG"].append(gains / ideal)


def bm25(texts: Sequence[str], k1: float = 1.2, b: float = 0.75) -> Callable[[str], list[int]]:
    """Plain BM25: which texts have words of a query, best first."""
    counted = [collections.Counter(WORDS.findall(text.lower())) for text in texts]
    sizes = [sum(one.values()) for one in counted]
    mean = statistics.mean(sizes)
    postings: dict[str, list[tuple[int, int]]] = collections.defaultdict(list)
    for at, one in enumerate(counted):
        for word, times in one.items():
            postings[word].append((at, times))

    def ask(query: str) -> list[int]:
        scores: dict[int, float] = collections.defaultdict(float)
        for word in set(WORDS.findall(query.lower())):
            found = postings.get(word, ())
            weight = math.log(1 + (len(texts) - len(found) + 0.5) / (len(found) + 0.5))
            for at, times in found:
                scores[at] += weight * times * (k1 + 1) / (times + k1 * (1 - b + b * sizes[at] / mean))
        return sorted(scores, key=lambda at: (-scores[at], at))[:DEPTH]

    return ask


def sets(folder: Path) -> Iterator[tuple[str, Callable[[], Iterator[Collection]]]]:
    for path in sorted((folder / "memory/dev").glob("*.jsonl*")):
        yield path.name.split(".")[0], lambda path=path: conversations(path)  # type: ignore[misc]
    for place in sorted((folder / "retrieval/dev").iterdir()):
        if list(place.glob("corpus.jsonl*")):
            yield place.name, lambda place=place: documents(place)  # type: ignore[misc]


def conversations(path: Path) -> Iterator[Collection]:
    for row in rows(path):
        chunks = [
            Chunk(
                text=turn["text"][start : start + PIECE], place=turn["id"], section=str(turn.get("session")),
                speaker=turn["speaker"],
                at=next(iter(find_dates(turn.get("timestamp") or "")), ""),
                sort="turn",
            )
            for turn in row["turns"]
            for start in range(0, max(len(turn["text"]), 1), PIECE)
        ]  # fmt: skip
        questions = [Question(one["q"], frozenset(map(str, one["evidence"]))) for one in row["questions"]]
        yield Collection(row["conversation_id"], chunks, questions)


def documents(place: Path) -> Iterator[Collection]:
    sort: Any = "code" if place.name == "cosqa" else "text"
    chunks = [
        Chunk(text=f"{row['title']}\n{row['text']}".strip(), place=row["_id"], section=row["_id"], sort=sort)
        for row in rows(packed_or_not(place / "corpus.jsonl"))
    ]
    wanted: dict[str, set[str]] = collections.defaultdict(set)
    for line in (place / "qrels.tsv").read_text().splitlines()[1:]:
        query, document, score = line.split("\t")
        if float(score) > 0:
            wanted[query].add(document)
    found = rows(packed_or_not(place / "queries.jsonl"))
    yield Collection(
        place.name, chunks, [Question(row["text"], frozenset(wanted[row["_id"]])) for row in found]
    )


def packed_or_not(path: Path) -> Path:
    return path if path.exists() else path.with_name(f"{path.name}.zst")


def rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as raw:
        stream: Any = raw
        if path.suffix == ".zst":
            zstandard: Any = importlib.import_module("zstandard")  # only packed sets need it
            stream = zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(raw)
        for line in io.TextIOWrapper(stream, "utf-8", newline="\n"):
            yield json.loads(line)


class Kept:
    """An embedder that computes each text once, and keeps its vectors in a file."""

    def __init__(self, path: Path) -> None:
        import numpy as np  # noqa: PLC0415 - only vectors need it

        self._np, self._path, self._new = np, path, 0
        self._embedder: Embedder | None = None
        self._vectors: dict[str, Any] = {}
        if path.exists():
            stored = np.load(path)
            self._vectors = dict(zip(stored["names"].tolist(), stored["vectors"], strict=True))

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        digests = [hashlib.sha256(text.encode()).hexdigest()[:20] for text in texts]
        missing = {one: text for one, text in zip(digests, texts, strict=True) if one not in self._vectors}
        if missing:
            self._embedder = self._embedder or local_embedder()
            made = await self._embedder(list(missing.values()))
            self._vectors.update(zip(missing, made, strict=True))
            self._new += len(missing)
        return [self._vectors[one] for one in digests]

    async def nearest(self, chunks: Sequence[Chunk]) -> Callable[[str], Awaitable[list[int]]]:
        """By vectors alone: which chunks are nearest to a text, nearest first."""
        matrix = self._np.asarray(
            await self.embed([text_to_embed(chunk) for chunk in chunks]), dtype="float32"
        )
        matrix /= self._np.linalg.norm(matrix, axis=1, keepdims=True)

        async def ask(text: str) -> list[int]:
            wanted = self._np.asarray((await self.embed([text]))[0], dtype="float32")
            order: list[int] = self._np.argsort(-(matrix @ wanted), kind="stable")[:DEPTH].tolist()
            return order

        return ask

    def save(self) -> None:
        if self._new:
            matrix = self._np.array(list(self._vectors.values()), dtype=self._np.float16)
            self._np.savez(self._path, names=self._np.array(list(self._vectors)), vectors=matrix)
            self._new = 0


if __name__ == "__main__":
    main()
