"""Whether the counters count right: against their references, and against what providers reported.

    python -m bench.counting --references FOLDER    text by text, with the tokenizers' own files
    python -m bench.counting --traces FILE...       recorded sessions: tokens that one tool result added
    python -m bench.counting --speed                speed, and the error of sampling where that is done
    python -m bench.counting --quick                a run of a second or two, to see that it works

A reference is a file VOCABULARY@SOURCE with the ending .json (Hugging Face; read by `tokenizers`),
.tekken.json (Mistral) or .tiktoken, perhaps .gz (ranks; read by `tiktoken`): notes/counting.md names the
packages that carry them. A trace is a line of JSON with `messages` in the OpenAI chat format and
`meta.usage`: per answer its `index`, `input_tokens`, `cache_read`, `cache_write` and `output_tokens`.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import importlib
import json
import random
import statistics
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `bench`, however this is started

from bench.estimate import Sample, corpus, made_up_corpus
from bench.samples import QUICK_HELP, sample_sessions
from lamina.models.counters import claude, counter_for
from lamina.models.counters.vocabularies import vocabulary

Count = Callable[[str], int]

EXTRA = (
    *(unit * 3_000 for unit in (" ", "a", "=", "\n", "\t", "0", "ab", "世", "🌍")),
    "<|endoftext|> <|im_start|>user <|think|> [INST] </s> <|eot_id|>",
    "e\u0301 n\u0303 \u0e01\u0e33 \u1e0b\u0323 \u2126 \ufb01",
    "<table><tr><td>1</td></tr></table> <p>no</p> <code>x</code>",
    "\r\n\r\n \u00a0\u3000\u2028 x",
)
LEAST = 30
"""Tokens of a result that is worth a point."""

OPENAI = {"o200k_base", "cl100k_base"}
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PATTERNS = {"llama3": LLAMA3, "qwen3": LLAMA3.replace("{1,3}", "")}


def main() -> None:
    parser = argparse.ArgumentParser(description="Judge the counters.")
    parser.add_argument("--references", type=Path, metavar="FOLDER", help="files of tokenizers")
    parser.add_argument("--traces", type=Path, nargs="+", default=[], metavar="FILE", help="JSON lines")
    parser.add_argument("--speed", action="store_true", help="speed, and the error of sampling")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    parser.add_argument("--quick", action="store_true", help=QUICK_HELP)
    arguments = parser.parse_args()
    figures: dict[str, Any] = {}
    if arguments.references:
        figures["references"] = agreement(arguments.references)
    if arguments.traces:
        figures["slopes"] = slopes(arguments.traces)
    if arguments.speed:
        figures["speed"] = speed(VOCABULARIES, VERSIONS, corpus)
    if arguments.quick:
        with sample_sessions(sessions=1, turns=12) as path:
            figures["slopes"] = slopes([path])
        figures["speed"] = speed(("o200k_base",), (), made_up_corpus)
    if not figures:
        parser.error("say what to judge, or --quick")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


Corpus = Callable[[random.Random], list[Sample]]


def texts(make: Corpus = corpus) -> list[str]:
    rng = random.Random(20261115)  # noqa: S311 - the same texts each time, not a secret
    return [*(text for _, text in make(rng)), *EXTRA]


# against the references


def agreement(folder: Path) -> dict[str, int]:
    """For each reference, how many texts it counts otherwise."""
    samples = texts()
    figures: dict[str, int] = {}
    print(f"{len(samples):,} texts, {sum(len(text.encode()) for text in samples):,} bytes")
    for path in sorted(folder.iterdir()):
        name, _, source = path.name.partition("@")
        count, ours = reference(path, name), vocabulary(name).count
        wrong = [text for text in samples if ours(text) != count(text)]
        figures[path.name] = len(wrong)
        print(f"{name:12} {source:45} {len(wrong):5} texts differ {[text[:24] for text in wrong[:3]]}")
    return figures


def reference(path: Path, name: str) -> Count:
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    if path.name.endswith(".tekken.json"):
        return _tekken(json.loads(data))
    return _hugging_face(data) if path.suffix == ".json" else _ranks(data, name)


def _hugging_face(data: bytes) -> Count:
    from tokenizers import Tokenizer  # noqa: PLC0415 - only this needs it

    read = json.loads(data)
    keep = {"<code>", "</code>", "<table>"}  # Gemma's tags are ordinary tokens, chat markers are not
    tags = any(token["content"] in keep for token in read["added_tokens"])
    read["added_tokens"] = [
        token
        for token in read["added_tokens"]
        if not token["special"] and (tags or not token["content"].startswith("<"))
    ]
    tokenizer = Tokenizer.from_str(json.dumps({**read, "post_processor": None}))
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


def _ranks(data: bytes, name: str) -> Count:
    ranks = {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, data.splitlines())}
    count = _tiktoken(ranks, _openai_pattern(name) if name in OPENAI else PATTERNS[name])
    return (lambda text: count(unicodedata.normalize("NFC", text))) if name == "qwen3" else count


def _openai_pattern(name: str) -> str:
    """The pattern that tiktoken itself has, without the download of its ranks."""
    openai_public: Any = import_module("tiktoken_ext.openai_public")
    openai_public.load_tiktoken_bpe = lambda *_, **__: {}
    return str(getattr(openai_public, name)()["pat_str"])


def _tekken(read: dict[str, Any]) -> Count:
    size = read["config"]["default_vocab_size"] - read["config"]["default_num_special_tokens"]
    ranks = {base64.b64decode(it["token_bytes"]): it["rank"] for it in read["vocab"][:size]}
    return _tiktoken(ranks, read["config"]["pattern"])


def _tiktoken(ranks: dict[bytes, int], pattern: str) -> Count:
    tiktoken: Any = importlib.import_module("tiktoken")  # only this needs it
    encoding = tiktoken.Encoding("reference", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    return lambda text: len(encoding.encode_ordinary(text))


# against reported usage


def slopes(files: list[Path]) -> dict[str, dict[str, Any]]:
    by_model: dict[str, list[tuple[str, int]]] = {}
    figures: dict[str, dict[str, Any]] = {}
    for file in files:
        for model, text, tokens in added(file):
            by_model.setdefault(model, []).append((text, tokens))
    print(f"{'model':28} {'counter':20} {'basis':10} results  slope  intercept  median residual")
    for model, pairs in sorted(by_model.items()):
        if len(pairs) >= 20:
            figures[model] = fitted(model, pairs)
            print(f"{model:28} {_slope_line(figures[model])}")
    return figures


def added(file: Path) -> Iterator[tuple[str, str, int]]:
    """Tool results that were all that was new in a request, with the tokens that they added to it."""
    with file.open(encoding="utf-8") as lines:
        for trace in map(json.loads, lines):
            usage, messages = trace["meta"].get("usage") or [], trace["messages"]
            for before, after in pairwise(usage):
                new = messages[before["index"] + 1 : after["index"]]
                tokens = read_by(after) - read_by(before) - (before["output_tokens"] or 0)
                if len(new) == 1 and new[0]["role"] == "tool" and isinstance(new[0]["content"], str):
                    yield str(trace["meta"].get("model")), new[0]["content"], tokens


def read_by(usage: dict[str, Any]) -> int:
    return sum(usage[field] or 0 for field in ("input_tokens", "cache_read", "cache_write"))


def fitted(model: str, pairs: list[tuple[str, int]], *, most: int = 200) -> dict[str, Any]:
    """A line through the middle: Theil's slope, which strays in the records do not move."""
    counter = counter_for(model)
    counted = ((counter.count(text), tokens) for text, tokens in pairs[:: max(1, len(pairs) // (4 * most))])
    points = list(islice(((x, y) for x, y in counted if x >= LEAST and 0 < y < 4 * x), most))
    figures: dict[str, Any] = {"counter": counter.name, "basis": counter.basis, "results": len(points)}
    if len(points) < 20:
        return figures
    pairs_of = [(a, b) for at, a in enumerate(points) for b in points[at + 1 :] if a[0] != b[0]]
    slope = statistics.median((b[1] - a[1]) / (b[0] - a[0]) for a, b in pairs_of)
    intercept = statistics.median(y - slope * x for x, y in points)
    residual = statistics.median(abs(y - slope * x - intercept) / y for x, y in points)
    return figures | {"slope": slope, "intercept": intercept, "residual": residual}


def _slope_line(figures: dict[str, Any]) -> str:
    head = f"{figures['counter']:20} {figures['basis']:10} "
    if "slope" not in figures:
        return f"{head}too few of {figures['results']} results"
    line = f"{figures['results']:7} {figures['slope']:6.3f} {figures['intercept']:10.1f}"
    return f"{head}{line} {100 * figures['residual']:10.1f} %"


# speed


VOCABULARIES = ("o200k_base", "gemma2", "qwen3", "deepseek_v3", "mistral_v3", "llama3", "glm4")
VERSIONS = ("3.0", "4.8")


def speed(vocabularies: Sequence[str], versions: Sequence[str], make: Corpus) -> dict[str, float]:
    """Megabytes a second of each vocabulary."""
    samples = texts(make)
    size = sum(len(text.encode()) for text in samples)
    figures: dict[str, float] = {}
    for name in vocabularies:
        count = vocabulary(name).count
        took = min(timed(lambda count=count: [count(text) for text in samples]) for _ in range(2))  # type: ignore[misc]
        figures[name] = size / took / 1e6
        print(f"{name:12} {figures[name]:6.1f} MB/s")
    for version in versions:
        sampled(version)
    return figures


def sampled(version: str) -> None:
    """What sampling costs and misses on long texts: samples of one kind, joined, and of all kinds, joined."""
    by_kind: dict[str, list[str]] = {}
    for kind, text in corpus(random.Random(7)):  # noqa: S311 - as above
        by_kind.setdefault(kind, []).append(text)
    rng = random.Random(11)  # noqa: S311 - as above
    mixed = [text for some in by_kind.values() for text in some]
    rng.shuffle(mixed)
    count, errors, took, size = claude.version(version).count, [], 0.0, 0
    for text in ("".join(some)[:150_000] for some in [*by_kind.values(), mixed]):
        if len(text) <= claude.WHOLE:
            continue
        thirds = [text[at : at + claude.WHOLE] for at in range(0, len(text), claude.WHOLE)]
        started = time.process_time()
        truth = sum(map(count, thirds))
        took, size = took + time.process_time() - started, size + len(text.encode())
        errors.append(100 * (count(text) / truth - 1))
    print(
        f"ctok {version}: {size / took / 1e6:.2f} MB/s; sampling of {len(errors)} long texts is off by",
        end=" ",
    )
    print(f"{min(errors):+.1f} to {max(errors):+.1f} %, median {statistics.median(map(abs, errors)):.1f} %")


def timed(run: Callable[[], object]) -> float:
    started = time.process_time()
    run()
    return time.process_time() - started


if __name__ == "__main__":
    main()
