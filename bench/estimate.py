"""Fits and judges the byte-class estimate of `lamina.core.text.estimate` against exact tokenizers.

    python bench/estimate.py            how far the shipped table is off, per family and per sort of text
    python bench/estimate.py --fit      fit a new table on half of the corpus, judge it on the other half
    python bench/estimate.py --family unknown --fit      only this one
    python bench/estimate.py --json     the same figures as JSON
    python bench/estimate.py --quick    a run of a second or two, to see that it works

The corpus is what any Debian machine with Python has (sources, manuals, licences, message catalogues in
many languages) and what this script makes up (JSON, logs, identifiers, noise). The exact counts are
splintr's; for Claude they are those of `ctok` where it is installed (`pip install ctok`), else Claude is
left out. Errors are signed and in per cent: negative means that the estimate is too low.

The families in `BOUNDS` are fitted not to the middle of the errors but to their upper end, since a request
that is longer than its estimate may not fit the window. `unknown` is for models whose tokenizer nobody knows:
it is fitted to the largest count of all vocabularies, and for each vocabulary `below` says how many texts are
longer than that.
"""

from __future__ import annotations

import argparse
import base64
import glob
import gzip
import importlib
import json
import random
import statistics
import struct
import sys
import sysconfig
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from splintr import Tokenizer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `bench`, however this is started

from bench.samples import QUICK_HELP
from lamina.core.text.estimate import FAMILIES, PATTERNS, UNIT, estimate_tokens, features
from lamina.models.counters.vocabularies import vocabulary

Sample = tuple[str, str]
Count = Callable[[str], int]

SAMPLES_PER_SORT = 80
SHORTEST, LONGEST = 100, 8_000  # characters of a sample, spread evenly on a logarithmic scale
SWEEPS = 3_000  # of coordinate descent; the error no longer changes in its third digit
QUICK_SAMPLES, QUICK_SWEEPS, QUICK_FAMILIES = 4, 20, ("o200k", "cl100k")

VOCABULARIES = {
    "o200k": "o200k_base",
    "cl100k": "cl100k_base",
    "gemini": "gemma2",  # counts Gemini's text exactly
    "llama3": "llama3",
    "qwen3": "qwen3",
    "deepseek": "deepseek_v3",
    "mistral": "mistral_v3",
}
CLAUDE = {"claude": "4.8", "claude3": "3.0", "claude_bound": "4.8", "claude3_bound": "3.0"}
UNKNOWN = "unknown"
BOUNDS = (UNKNOWN, "claude_bound", "claude3_bound")
"""Families that are fitted to the upper end of the errors."""

BOUNDED = (
    "o200k_base",
    "cl100k_base",
    "llama3",
    "qwen3",
    "deepseek_v3",
    "mistral_v3",
    "gemma2",
    "gemma3",
    "glm4",
    "kimi_k2",
)
"""The vocabularies that the estimate for unknown models bounds."""

UPPER_QUANTILE = 0.97
UPPER_MARGIN = 1.08
"""The fit for unknown models covers this share of the corpus, and gets this margin for other texts.

A lower quantile with a larger margin costs less of a window than a higher one with a smaller margin, for as
many texts that are longer than estimated: the margin serves texts that are not like the corpus.
"""

REWEIGHTINGS, REFINING_SWEEPS = 40, 60
LEAST_ERROR = 0.02
"""How often the rows of that fit are weighed anew, the length of a fit, and the least error that counts."""

LANGUAGES = {
    "german": ("de",),
    "french": ("fr",),
    "spanish, italian": ("es", "pt_BR", "it"),
    "nordic, dutch": ("sv", "da", "fi", "nl"),
    "polish, czech": ("pl", "cs", "hu"),
    "turkish, vietnamese": ("tr", "vi"),
    "cyrillic": ("ru", "uk", "bg"),
    "greek": ("el",),
    "georgian": ("ka",),
    "arabic": ("ar", "fa"),
    "hebrew": ("he",),
    "indic": ("hi", "bn", "ta", "mr"),
    "thai": ("th",),
    "japanese": ("ja",),
    "korean": ("ko",),
    "chinese": ("zh_CN", "zh_TW"),
}
ODD = ("rules", "runs", "noise, ascii", "noise, unicode")
"""Sorts that weigh a tenth in a fit: they bound the error on strange text and are not what people send."""

LEAST = {"o": 0.3, "t": 0.02, "l": 0.3, "g": 0.1, "k": 0.1, "h": 0.1, "j": 0.3, "q": 0.3, "w": 0.2, "u": 0.5}
LEAST |= {"n": 0.02, "ss": 0.02, "1": 0.3}
"""Least weights: the corpus has too little of these to learn from, and no text may be free."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Fit and judge the byte-class estimate.")
    parser.add_argument("--fit", action="store_true", help="fit a new table on one half of the corpus")
    parser.add_argument("--family", choices=FAMILIES, nargs="+", help="fit and judge only these")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quick", action="store_true", help=QUICK_HELP)
    arguments = parser.parse_args()
    rng = random.Random(20261115)  # noqa: S311 - the same corpus each time, not a secret
    samples = made_up_corpus(rng) if arguments.quick else corpus(rng)
    size = sum(len(text.encode()) for _, text in samples)
    print(f"{len(samples):,} samples, {size:,} bytes", file=sys.stderr)
    families = QUICK_FAMILIES if arguments.quick else FAMILIES
    if arguments.family:
        families = tuple(arguments.family)
    texts = [text for _, text in samples]
    exact = exact_counts(texts, families)
    if UNKNOWN in families:
        exact[UNKNOWN] = largest_counts(texts)
    table: dict[str, list[int]] = {}
    if arguments.fit:
        sweeps = QUICK_SWEEPS if arguments.quick else SWEEPS
        halves = {name: counts[::2] for name, counts in exact.items()}
        table = fit(samples[::2], halves, sweeps=sweeps)
    figures = judge(samples[1::2], {name: counts[1::2] for name, counts in exact.items()}, table)
    if UNKNOWN in families:
        figures[UNKNOWN]["below"] = shares_below(texts[1::2], table.get(UNKNOWN))
    print(json.dumps(figures, indent=1) if arguments.json else written(figures))
    if table and not arguments.json:
        print(written_table(table))


def judge(samples: list[Sample], exact: dict[str, list[int]], table: dict[str, list[int]]) -> dict[str, Any]:
    """Errors on samples that no fit has seen, per family, counter and sort of text."""
    figures: dict[str, Any] = {}
    for family, truth in exact.items():
        counters: dict[str, Count] = {
            "estimate": estimator(family, table.get(family)),
            "chars/4": lambda text: -(-len(text) // 4),
            "bytes/3.5 + 5 %": lambda text: -(-len(text.encode()) * 3 // 10),
        }
        figures[family] = {name: errors(count, samples, truth) for name, count in counters.items()}
    return figures


def shares_below(texts: list[str], weights: list[int] | None) -> dict[str, float]:
    """For each vocabulary the per cent of texts with more tokens than is estimated for unknown models."""
    count = estimator(UNKNOWN, weights)
    estimates = [min(count(text), len(text.encode())) for text in texts]
    shares: dict[str, float] = {}
    for name, counts in bounded_counts(texts).items():
        below = sum(tokens > estimate for tokens, estimate in zip(counts, estimates, strict=True))
        shares[name] = round(100 * below / len(texts), 1)
    return shares


def estimator(family: str, weights: list[int] | None) -> Count:
    if weights is None:
        return lambda text: estimate_tokens(text, family=family)
    return lambda text: -(-sum(map(int.__mul__, weights, features(text))) // UNIT)


def errors(count: Count, samples: list[Sample], truth: list[int]) -> dict[str, dict[str, float]]:
    by_sort: dict[str, list[float]] = {"all": []}
    for (sort, text), tokens in zip(samples, truth, strict=True):
        error = 100 * (count(text) / tokens - 1)
        by_sort["all"].append(error)
        by_sort.setdefault(sort, []).append(error)
    return {sort: summary(values) for sort, values in by_sort.items()}


def summary(values: list[float]) -> dict[str, float]:
    """Errors in per cent, and how many of them are too low."""
    twentieths = statistics.quantiles(values, n=20, method="inclusive")
    found = {
        "mean": statistics.fmean(values),
        "p5": twentieths[0],
        "p95": twentieths[-1],
        "worst": min(values),
        "below": 100 * sum(value < 0 for value in values) / len(values),
    }
    return {name: round(value, 1) for name, value in found.items()}


def written(figures: dict[str, Any]) -> str:
    lines = [f"{'family':10} {'counter':16} {'mean':>7} {'p5':>7} {'p95':>7} {'worst':>7} {'below':>7}"]
    for family, counters in figures.items():
        shares = counters.pop("below", {})
        lines += [f"{family:10} {name:16} {_row(found['all'])}" for name, found in counters.items()]
        lines += [f"{family:10} below {name:10} {share:7.1f} %" for name, share in shares.items()]
    for sort in next(iter(figures.values()))["estimate"]:
        lines += ["", sort] if sort != "all" else []
        for family, counters in figures.items() if sort != "all" else ():
            lines.append(f"{family:10} {'estimate':16} {_row(counters['estimate'][sort])}")
    return "\n".join(lines)


def _row(found: dict[str, float]) -> str:
    return " ".join(f"{value:+7.1f}" for value in found.values())


def written_table(table: dict[str, list[int]]) -> str:
    """The table as `lamina.core.text.estimate` holds it."""
    families = [family for family in FAMILIES if family in table]
    lines = ["", f"{'pattern':9} " + " ".join(f"{family:>8}" for family in families)]
    for row, pattern in enumerate(PATTERNS):
        lines.append(f"{pattern:9} " + " ".join(f"{table[family][row]:8}" for family in families))
    return "\n".join(lines)


# exact counts


def exact_counts(texts: list[str], families: Sequence[str]) -> dict[str, list[int]]:
    counters = dict(_splintr_counters(families)) | dict(_claude_counters(families))
    counts = {}
    for family in (family for family in families if family in counters):
        print(f"counting with the tokenizer of {family}", file=sys.stderr)
        counts[family] = [counters[family](text) for text in texts]
    return counts


def largest_counts(texts: list[str]) -> list[int]:
    """The largest count of each text in all vocabularies that the estimate for unknown models bounds."""
    return [max(counts) for counts in zip(*bounded_counts(texts).values(), strict=True)]


def bounded_counts(texts: list[str]) -> dict[str, list[int]]:
    counts: dict[str, list[int]] = {}
    for name in BOUNDED:
        count = vocabulary(name).count
        counts[name] = [count(text) for text in texts]
    return counts


def _splintr_counters(families: Sequence[str]) -> Iterator[tuple[str, Count]]:
    for family, name in VOCABULARIES.items():
        if family not in families:
            continue
        encode = Tokenizer.from_pretrained(name).encode_ordinary
        yield family, partial(_length, encode)


def _claude_counters(families: Sequence[str]) -> Iterator[tuple[str, Count]]:
    if not set(families) & set(CLAUDE):
        return
    try:
        ctok: Any = importlib.import_module("ctok")
    except ImportError:
        print("ctok is not installed: Claude is left out", file=sys.stderr)
        return
    for family, version in CLAUDE.items():
        frame = ctok.tokenize("a", version).count("⟨pad⟩")
        yield family, partial(_claude_count, ctok, version, frame)


def _length(encode: Callable[[str], list[int]], text: str) -> int:
    return len(encode(text))


def _claude_count(ctok: Any, version: str, frame: int, text: str) -> int:
    return int(ctok.token_count(text, version)) - frame


# the fit


def fit(samples: list[Sample], exact: dict[str, list[int]], *, sweeps: int) -> dict[str, list[int]]:
    """Non-negative least squares on the relative error, in units of the table."""
    rows = [features(text) for _, text in samples]
    importance = [0.1 if sort in ODD else 1.0 for sort, _ in samples]
    table = {}
    for family, truth in exact.items():
        print(f"fitting {family}", file=sys.stderr)
        scaled = [[value / tokens for value in row] for row, tokens in zip(rows, truth, strict=True)]
        if family in BOUNDS:
            weights = upper_fit(scaled, importance)
        else:
            weights = least_squares(scaled, importance, sweeps=sweeps)
        table[family] = [round(UNIT * weight) for weight in weights]
    return table


def upper_fit(rows: list[list[float]], importance: list[float]) -> list[float]:
    """Weights with which `UPPER_QUANTILE` of the rows sum to 1 or more, with the margin on top.

    Regression to a quantile: least squares again and again, in which a row that is too low weighs more than
    one that is too high, and a small error of either as much as a large one.
    """
    numpy: Any = importlib.import_module("numpy")  # the rows are weighed so often that Python takes minutes
    matrix, plain_weights = numpy.array(rows), numpy.array(importance)
    row_weights = plain_weights
    weights = [LEAST.get(pattern, 0.0) for pattern in PATTERNS]
    for _ in range(1 + REWEIGHTINGS):
        heavy = matrix * row_weights[:, None]
        weights = descend((heavy.T @ matrix).tolist(), heavy.sum(0).tolist(), weights, REFINING_SWEEPS)
        errors = 1 - matrix @ numpy.array(weights)
        side = numpy.where(errors > 0, UPPER_QUANTILE, 1 - UPPER_QUANTILE)
        row_weights = plain_weights * side / numpy.maximum(abs(errors), LEAST_ERROR)
    return [UPPER_MARGIN * weight for weight in weights]


def least_squares(rows: list[list[float]], importance: list[float], *, sweeps: int) -> list[float]:
    """Weights, none below its least, with which every row sums to about 1.

    Coordinate descent on the normal equations: small enough to need no library.
    """
    columns = list(zip(*rows, strict=True))
    heavy = [[value * weight for value, weight in zip(column, importance, strict=True)] for column in columns]
    normal = [[_dot(left, right) for right in columns] for left in heavy]
    target = [sum(column) for column in heavy]
    return descend(normal, target, [LEAST.get(pattern, 0.0) for pattern in PATTERNS], sweeps)


def descend(normal: list[list[float]], target: list[float], start: list[float], sweeps: int) -> list[float]:
    """Solve the normal equations by coordinate descent, from `start` on; no weight gets below its least."""
    least = [LEAST.get(pattern, 0.0) for pattern in PATTERNS]
    weights = list(start)
    for _ in range(sweeps):
        for index, line in enumerate(normal):
            if line[index]:
                step = (target[index] - _dot(line, weights)) / line[index]
                weights[index] = max(least[index], weights[index] + step)
    return weights


def _dot(left: Any, right: Any) -> float:
    return sum(map(float.__mul__, left, right))


# the corpus


def corpus(rng: random.Random) -> list[Sample]:
    samples = []
    for sort, texts in (*found(rng), *spoken(rng), *made_up(rng)):
        samples += [(sort, text) for text in _cuts(texts, rng, SAMPLES_PER_SORT)]
    return samples


def made_up_corpus(rng: random.Random) -> list[Sample]:
    """A few samples of what this script makes up: no file is read for them."""
    return [(sort, text) for sort, texts in made_up(rng, each=2) for text in _cuts(texts, rng, QUICK_SAMPLES)]


def _cuts(texts: list[str], rng: random.Random, count: int) -> Iterator[str]:
    usable = [text for text in texts if len(text) > SHORTEST]
    for number in range(count if usable else 0):
        text = rng.choice(usable[number % 2 :: 2] or usable)  # so that the halves share no text
        length = int(SHORTEST * (LONGEST / SHORTEST) ** rng.random())
        start = rng.randrange(max(1, len(text) - length))
        yield text[start : start + length]


def found(rng: random.Random) -> Iterator[tuple[str, list[str]]]:
    """Files of this machine; what it does not have is left out."""
    library, packages = sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")
    patterns = {
        "python": (f"{library}/*.py", f"{library}/*/*.py"),
        "c": ("/usr/include/*.h", "/usr/include/*/*.h"),
        "shell, perl": ("/usr/share/bash-completion/completions/*", "/usr/share/perl/*/*/*.pm"),
        "javascript, css": ("/usr/share/**/*.js", "/usr/share/**/*.css"),
        "html, xml": ("/usr/share/**/*.html", "/usr/share/**/*.xml"),
        "markdown": (f"{packages}/*.dist-info/METADATA", "/usr/share/**/*.md"),
        "licence": ("/usr/share/common-licenses/*",),
        "manual": ("/usr/share/man/man[1-8]/*.gz",),
        "changelog": ("/usr/share/doc/*/changelog*.gz",),
    }
    for sort, places in patterns.items():
        yield sort, [text for place in places for text in _read_some(place, rng)]


def _read_some(pattern: str, rng: random.Random) -> Iterator[str]:
    paths = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - Path.glob takes no absolute pattern
    for path in rng.sample(paths, min(80, len(paths))):
        try:
            data = Path(path).read_bytes()
            yield (gzip.decompress(data) if path.endswith(".gz") else data).decode()
        except (OSError, EOFError, UnicodeDecodeError):
            continue


def spoken(rng: random.Random) -> Iterator[tuple[str, list[str]]]:
    """The message catalogues of installed programs, one text each, for many languages."""
    for sort, languages in LANGUAGES.items():
        texts = []
        for language in languages:
            for path in sorted(Path("/usr/share/locale", language, "LC_MESSAGES").glob("*.mo")):
                messages = _messages(path.read_bytes())
                rng.shuffle(messages)
                texts.append("\n".join(messages))
        yield sort, texts


def _messages(catalogue: bytes) -> list[str]:
    """The translations of a gettext catalogue; none where it is not little-endian or not UTF-8."""
    magic, _, number, _, start = struct.unpack_from("<5I", catalogue)
    if magic != 0x950412DE:
        return []
    places = [struct.unpack_from("<2I", catalogue, start + 8 * index) for index in range(1, number)]
    try:
        return [catalogue[at : at + length].decode().replace("\0", "\n") for length, at in places]
    except UnicodeDecodeError:
        return []


def made_up(rng: random.Random, *, each: int = 20) -> Iterator[tuple[str, list[str]]]:
    words = sorted(
        {word for text in _read_some("/usr/share/common-licenses/*", rng) for word in text.split()}
    )
    words = [word for word in words if word.isalpha()] or sorted(sys.stdlib_module_names)
    pick, below, some = rng.choice, rng.randrange, range(each)
    running = [
        word for text in _read_some("/usr/share/common-licenses/*", rng) for word in text.split()
    ] or words
    short = [word.lower() for word in running if word.isalpha() and len(word) <= 4]
    yield "short words", [_short_words(rng, short, style) for style in some]
    yield "small json", ["".join(_small_object(rng, short) for _ in range(300)) for _ in some]
    yield "figures", [_figures(rng, style) for style in some]
    yield "tables", [_table(rng, running, style) for style in some]
    yield "emoji lists", [_emoji_list(rng, running, style) for style in some]
    yield "console", ["\n".join(_console_line(rng, words, running) for _ in range(150)) for _ in some]
    yield "json", [_json(rng, words, style) for style in some]
    yield "log", ["\n".join(_log_line(rng, words) for _ in range(100)) for _ in some]
    yield "csv", ["\n".join(_csv_line(rng, words) for _ in range(150)) for _ in some]
    yield "base64", [base64.b64encode(rng.randbytes(9_000)).decode() for _ in some]
    yield "hex", [rng.randbytes(4_500).hex(*((" ",) if spaced % 2 else ())) for spaced in some]
    yield "uuid", ["\n".join(str(uuid.UUID(bytes=rng.randbytes(16))) for _ in range(250)) for _ in some]
    yield "numbers", ["".join(f"{below(10 ** below(1, 12))}{pick(', ')}" for _ in range(1_500)) for _ in some]
    yield "paths", ["\n".join("/".join(rng.choices(words, k=below(2, 7))) for _ in range(300)) for _ in some]
    yield "identifiers", [" ".join(_identifier(rng, words) for _ in range(700)) for _ in some]
    yield "capitals", [" ".join(rng.choices(words, k=1_200)).upper() for _ in some]
    yield (
        "emoji",
        ["".join(pick((chr(below(0x1F300, 0x1F650)), " ", pick(words))) for _ in range(2_500)) for _ in some],
    )
    yield (
        "whitespace",
        ["".join(pick(words) + pick(" \n\t") * below(1, 60) for _ in range(400)) for _ in some],
    )
    yield (
        "rules",
        ["\n".join(pick("=-*#_~.|+") * below(3, 90) + f" {pick(words)}" for _ in range(200)) for _ in some],
    )
    yield "runs", [" ".join(chr(below(33, 127)) * below(2, 200) for _ in range(90)) for _ in some]
    breaks = " \b\r\n\0"
    yield (
        "terminal",
        ["".join(f"\x1b[{below(30, 48)}m{pick(words)}{pick(breaks)}" for _ in range(900)) for _ in some],
    )
    yield "noise, ascii", ["".join(chr(below(32, 127)) for _ in range(9_000)) for _ in some]
    ranges = ((0xA0, 0x3000), (0x3040, 0xD7A0), (0xE000, 0xFFFE), (0x10000, 0x1F000))
    yield "noise, unicode", ["".join(chr(below(*pick(ranges))) for _ in range(9_000)) for _ in some]


def _short_words(rng: random.Random, short: list[str], style: int) -> str:
    if style % 3 == 0:
        return " ".join(rng.choices(short, k=1500))
    return (" ".join(rng.choices(short, k=rng.randrange(1, 12))) + " ") * 200


def _small_object(rng: random.Random, short: list[str]) -> str:
    below = rng.randrange
    numbers = f"{below(10)},{below(100)},{below(10)}"
    return f'{{"{rng.choice("abcdxyz")}":{below(10)},"{rng.choice(short)}":[{numbers}]}},'


def _figures(rng: random.Random, style: int) -> str:
    """Decimals, addresses, lists, times or small numbers."""
    below = rng.randrange
    if style % 5 == 0:
        rows = [",".join(f"{rng.uniform(-999, 999):.{below(1, 7)}f}" for _ in range(6)) for _ in range(200)]
        return "\n".join(rows)
    if style % 5 == 1:
        addresses = (f"{below(256)}.{below(256)}.{below(256)}.{below(256)}" for _ in range(400))
        return "\n".join(f"{address}:{below(65536)}" for address in addresses)
    if style % 5 == 2:
        return json.dumps([[below(10 ** below(1, 6)) for _ in range(16)] for _ in range(90)])
    if style % 5 == 3:
        return "\n".join(f"{_time(rng)} {below(10**6)}" for _ in range(250))
    return "".join(f"{below(10 ** below(1, 3))} " for _ in range(2500))


def _table(rng: random.Random, running: list[str], style: int) -> str:
    """A table in Markdown, with or without padding."""
    columns = rng.randrange(3, 8)
    rows = [[_cell(rng, running) for _ in range(columns)] for _ in range(120)]
    if style % 2:
        rows = [[cell.ljust(14) for cell in row] for row in rows]
    rule = "---|" if style % 3 else " :--- |"
    head = f"| {' | '.join(rng.choices(running, k=columns))} |"
    return "\n".join([head, "|" + rule * columns, *(f"| {' | '.join(row)} |" for row in rows)])


def _cell(rng: random.Random, running: list[str]) -> str:
    words = rng.choice(
        ("yes", rng.choice(running), f"`{rng.choice(running)}`", " ".join(rng.choices(running, k=4)))
    )
    number = rng.choice((str(rng.randrange(10**5)), f"{rng.random():.2%}", f"{rng.random() * 100:.1f}"))
    return rng.choice((words, number))


_EMOJI = [
    chr(code)
    for first, end in ((0x1F300, 0x1F650), (0x2600, 0x26FF), (0x1F900, 0x1F9FF))
    for code in range(first, end)
]


def _emoji_list(rng: random.Random, running: list[str], style: int) -> str:
    if style % 2:
        joined = ("\ufe0f", "\u200d", "\U0001f3fd", "")
        return "".join(rng.choice(_EMOJI) + rng.choice(joined) for _ in range(900))
    return "\n".join(f"- {rng.choice(_EMOJI)} {' '.join(rng.choices(running, k=7))}" for _ in range(150))


def _console_line(rng: random.Random, words: list[str], running: list[str]) -> str:
    """A line as test runners, loggers, stack traces and listings of folders print it."""
    below, pick = rng.randrange, rng.choice
    clock = f"{below(24):02}:{below(60):02}"
    text = " ".join(rng.choices(running, k=below(2, 9)))
    lines = (
        f"[{clock}:{below(60):02}.{below(1000):03}] {pick(words)}.{pick(words)}:{below(900)} - {text}",
        f"--- PASS: Test{pick(words).title()}/{pick(words)}_{below(99)} ({rng.random():.2f}s)",
        f"    at {pick(words)} ({'/'.join(rng.choices(words, k=4))}.js:{below(900)}:{below(80)})",
        f"-rw-r--r-- 1 root root {below(10**6):>7} Nov {below(1, 29):>2} {clock} {pick(words)}.py",
        f"{below(300):>6}\t{text}",
        f"tests/{pick(words)}/test_{pick(words)}.py ..F.s.. [{below(100):>3}%]",
    )
    return pick(lines)


def _identifier(rng: random.Random, words: list[str]) -> str:
    parts = [word.lower() for word in rng.choices(words, k=rng.randrange(1, 4))]
    camel = "".join(part.title() for part in parts)
    return rng.choice(("_".join(parts), parts[0] + camel, camel, ".".join(parts), "_".join(parts).upper()))


def _json(rng: random.Random, words: list[str], style: int) -> str:
    rows = [{_identifier(rng, words): _value(rng, words, depth=3) for _ in range(8)} for _ in range(20)]
    return json.dumps(
        rows, indent=(None, None, 2)[style % 3], separators=(",", ":") if style % 3 == 0 else None
    )


def _value(rng: random.Random, words: list[str], *, depth: int) -> Any:
    if depth and rng.random() < 0.3:
        return {
            _identifier(rng, words): _value(rng, words, depth=depth - 1) for _ in range(rng.randrange(1, 6))
        }
    text = " ".join(rng.choices(words, k=rng.randrange(1, 14)))
    number = rng.randrange(10 ** rng.randrange(1, 10))
    return rng.choice(
        (text, number, round(rng.random(), 5), True, None, rng.randbytes(8).hex(), [number], _time(rng))
    )


def _log_line(rng: random.Random, words: list[str]) -> str:
    level, place = rng.choice(("INFO", "WARN", "ERROR", "DEBUG")), _identifier(rng, words)
    text = " ".join(rng.choices(words, k=rng.randrange(2, 9)))
    return f"{_time(rng)} {level} [{place}] {text} id={rng.randbytes(4).hex()} ms={rng.randrange(5000)}"


def _csv_line(rng: random.Random, words: list[str]) -> str:
    number, name, price = rng.randrange(10**6), rng.choice(words), rng.random() * 1000
    return f"{number},{name},{price:.2f},{_time(rng)},{name}@example.org"


def _time(rng: random.Random) -> str:
    return datetime.fromtimestamp(rng.randrange(10**9, 2 * 10**9), UTC).isoformat()


if __name__ == "__main__":
    main()
