"""Runs the Python blocks of the documentation and compares what they print with what the page says.

    python -m tools.docs            names every difference and broken link
    python -m tools.docs PAGE ...   does so for these pages only
    python -m tools.docs --write    rewrites the output blocks from real output

The blocks of one page share one namespace and run in order, in an empty folder. A block with
`<!-- output -->` between it and the next block must print exactly that. `<!-- not run: REASON -->`
before a block skips it. Knows nothing of lamina, and of Markdown only fences, comments and links.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
OUTPUT = "<!-- output -->"
NOT_RUN = "<!-- not run"

_FENCE = re.compile(r"( *)(`{3,})([^`]*)")
_REASON = re.compile(r"<!-- not run: \S.* -->")
_TARGET = re.compile(
    r"\]\(([^()\s]+)(?: \"[^\"]*\")?\)|^\[[^\]]+\]: (\S+)|(?:src|href)=\"([^\"]+)\"", re.MULTILINE
)
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|#", re.IGNORECASE)


class PageError(Exception):
    """A page that cannot be checked as it stands; the message begins with its place."""


@dataclass(frozen=True)
class Fence:
    """A fenced block. Its text stands in `lines[start:end]`; `between` are the lines since the last fence."""

    language: str
    start: int
    end: int
    indent: int
    between: tuple[str, ...]


@dataclass(frozen=True)
class Block:
    """A Python block that is run, and the block that says what it prints."""

    code: Fence
    output: Fence | None


@dataclass(frozen=True)
class Difference:
    """What a page says that a block prints, and what it printed."""

    place: str
    output: Fence
    expected: str
    printed: str


def main(arguments: list[str]) -> int:
    failed = False
    named_pages = [Path(argument) for argument in arguments if not argument.startswith("-")]
    for page in named_pages or pages(ROOT):
        try:
            differences = check(page)
        except PageError as error:
            print(error, file=sys.stderr)
            failed = True
            continue
        if "--write" in arguments and differences:
            write(page, differences)
            print(f"{page.name}: rewrote {len(differences)} output blocks")
            differences = []
        problems = [f"{d.place}: prints\n{d.printed}and not\n{d.expected}" for d in differences]
        for problem in (*problems, *broken_links(page)):
            print(problem, file=sys.stderr)
            failed = True
    return 1 if failed else 0


def pages(root: Path) -> list[Path]:
    """Every page that is checked, in a fixed order."""
    folders = (root / "docs", root / "notes")
    return [
        *(root / name for name in PAGES),
        *(page for folder in folders for page in sorted(folder.rglob("*.md"))),
    ]


def check(page: Path) -> list[Difference]:
    """Run the page's blocks; what they print otherwise than the page says."""
    lines = _lines(page)
    blocks = read_blocks(lines, page.name)
    differences = []
    for block, printed in zip(blocks, _run(page, lines, blocks), strict=True):
        if block.output is None:
            continue
        expected = _text(lines, block.output)
        if printed != expected:
            place = f"{page.name}:{block.code.start}"
            differences.append(Difference(place, block.output, expected, printed))
    return differences


def write(page: Path, differences: list[Difference]) -> None:
    """Put what was printed into the page, last block first so that line numbers stay true."""
    lines = _lines(page)
    for difference in sorted(differences, key=lambda each: -each.output.start):
        fence = difference.output
        margin = " " * fence.indent
        lines[fence.start : fence.end] = [
            margin + line if line else "" for line in _split(difference.printed)
        ]
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")


def broken_links(page: Path) -> list[str]:
    """Links of the page to files that do not exist."""
    targets = _TARGET.findall(_prose(_lines(page)))
    paths = (path for groups in targets for path in groups if path and not _ELSEWHERE.match(path))
    return [
        f"{page.name}: links to {path!r}, which does not exist"
        for path in paths
        if not (page.parent / path.partition("#")[0]).exists()
    ]


def read_blocks(lines: list[str], name: str) -> list[Block]:
    """The Python blocks to run, each with its output; refuses comments that would have no effect."""
    blocks: list[Block] = []
    previous: Fence | None = None
    for fence in fences(lines, name):
        remark = fence.between[-1] if fence.between else ""
        place = f"{name}:{fence.start}"
        if remark == OUTPUT:
            if not blocks or blocks[-1].code is not previous or len(fence.between) > 1:
                raise PageError(f"{place}: {OUTPUT} does not directly follow a Python block that is run")
            blocks[-1] = Block(blocks[-1].code, fence)
        elif remark.startswith(NOT_RUN):
            if not _REASON.fullmatch(remark):
                raise PageError(f"{place}: say why it is not run: {NOT_RUN}: REASON -->")
        elif fence.language in {"python", "py"}:
            blocks.append(Block(fence, None))
        previous = fence
    return blocks


def fences(lines: list[str], name: str) -> Iterator[Fence]:
    """Every fenced block, in order."""
    number = 0
    between: list[str] = []
    while number < len(lines):
        opening = _FENCE.fullmatch(lines[number])
        if opening:
            start, end = number + 1, _closing(lines, number + 1, opening[2], name)
            language = (opening[3].split() or [""])[0]
            yield Fence(language, start, end, len(opening[1]), tuple(between))
            number, between = end, []
        elif lines[number].strip():
            between.append(lines[number].strip())
        number += 1


def _closing(lines: list[str], start: int, ticks: str, name: str) -> int:
    for number in range(start, len(lines)):
        line = lines[number].strip()
        if line.startswith(ticks) and not line.strip("`"):
            return number
    raise PageError(f"{name}:{start}: the block is not closed")


def _run(page: Path, lines: list[str], blocks: list[Block]) -> list[str]:
    """What each block prints. The namespace is a real module, so that types made in it can be resolved."""
    module = ModuleType("__page__")
    sys.modules[module.__name__] = module
    try:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            return [
                _execute(_compile(page, lines, block.code), module, f"{page.name}:{block.code.start}")
                for block in blocks
            ]
    finally:
        del sys.modules[module.__name__]


def _compile(page: Path, lines: list[str], code: Fence) -> CodeType:
    padding = "\n" * code.start  # a traceback then shows the page's own lines
    try:
        return compile(padding + _text(lines, code), str(page), "exec", dont_inherit=True)
    except SyntaxError as error:
        raise PageError(f"{page.name}:{error.lineno}: {error.msg}") from error


def _execute(code: CodeType, module: ModuleType, place: str) -> str:
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(code, vars(module))  # noqa: S102  running the pages is what this file is for
    except (Exception, SystemExit) as error:
        raise PageError(f"{place}: {type(error).__name__}: {error}") from error
    text = printed.getvalue()
    return text if text.endswith("\n") or not text else text + "\n"


def _text(lines: list[str], fence: Fence) -> str:
    return "".join(line[min(fence.indent, _margin(line)) :] + "\n" for line in lines[fence.start : fence.end])


def _margin(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _prose(lines: list[str]) -> str:
    """The page without fenced blocks and code spans, where brackets and quotes are not links."""
    kept = list(lines)
    for fence in fences(lines, ""):
        kept[fence.start : fence.end] = [""] * (fence.end - fence.start)
    return re.sub(r"`[^`\n]*`", "", "\n".join(kept))


def _lines(page: Path) -> list[str]:
    try:
        return _split(page.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise PageError(f"{page.name} does not exist") from None


def _split(text: str) -> list[str]:
    """Lines at line feeds only: a page may show other separators as content."""
    return text.removesuffix("\n").split("\n") if text else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
