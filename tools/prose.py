"""Measures how easily the documentation reads, and finds constructions that readers tripped over.

    python -m tools.prose            the figures of each page, the longest sentences, the banned constructions
    python -m tools.prose --check    exit status 1 if a limit is passed; `make check` runs this

Only running text counts: code, tables, headings and link targets do not. A sentence ends with a full stop, a
question mark, an exclamation mark or a colon at the end of a paragraph.

The pages of the first steps and of tasks have no word that only contributors need, except in code, or in
*italics* where the page explains it.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent

MEDIAN_LIMIT = 16
LONG_LIMIT = 28
"""Words of the median sentence, and of the sentence that nine in ten are shorter than."""

LONGEST = 60
"""Words that no sentence may pass."""

LONGEST_PAGE = 3_500
"""Words of a page. What only contributors need, such as how a figure was measured, belongs in notes/."""

GENERATED = ("docs/api.md", "docs/cli.md")

BANNED = {
    r"\bWhat is no\b": 'say what it is: "Text that is not a file …"',
    r"\bWho nobody\b": "name the actor",
    r"\bthat very\b": 'say "the same"',
    r"\bbehind a portal\b": "say what runs where",
    r"\bforetells?\b": 'say "predicts"',
    r"\b[Rr]ooms a call\b": "name the quantity and the unit",
    r"\bfor prices as\b": 'say "at the prices of"',
    r"\bfor want of\b": 'say "because there is no …"',
    r"\bstays? words\b": 'say "is sent as text"',
    r"\bnone of (?:which|whom) it\b": "make two sentences",
    r"\bthereof\b|\bwherein\b|\bwhereof\b|\bhereby\b|\btherein\b": "use a plain word",
    r"\bbe it\b": 'say "whether"',
    r"\bsuch as has\b|\bsuch that has\b": "make two sentences",
    r"\bnought\b|\baught\b": "use a plain word",
    r"^Who\b[^?]*[^?]$": 'say "Whoever …", "A user who …" or "If you …"',
    r"\bthat is none\b": "say what is refused, and with which error",
    r"\bof one's own\b|\bone can see\b": 'say "of your own", "you can see"',
    r"\bhad again\b": 'say "recovered" or "recalled"',
    r"\bWhat is otherwise\b": 'say "What is different"',
    r"\bheld against\b|\btaken for one that\b": 'say "compared with", "counts as"',
    r"\bto nobody\b|\bis nobody\b": 'say "unknown"',
    r"\bsuch as it\b|\bas it leaves it\b": "make two sentences",
    r"\bit is that\b": "say what it is",
    r"\bWhat (?:is|was|needs?)\b[^.?:]* (?:is|was|are|stays|goes)\b[^?]*$": "begin with the actor",
    r"\b(?:can|may|could) be (?:had|asked for|looked at)\b": 'say who does it: "you can …"',
    r"\bIn the first minute\b|\bgains? authority\b|\bA say for\b|\bpriced apart\b": "use the plain words",
    r"\bthat [a-z]+ that [a-z]+ that\b|\bwhich [a-z]+ that was\b": "make two sentences",
    r"\bcase [A-Z]?[0-9]+\b|\b[A-Z][0-9]{1,2} to [A-Z][0-9]{1,2}\b": "readers cannot look up case numbers",
}
"""Constructions that a newcomer could not read, as patterns, and what to write instead."""

FIRST_PAGES = (
    "README.md", "docs/quickstart.md", "docs/concepts.md", "docs/wrap.md", "docs/run.md", "docs/gateway.md",
    "docs/inspector.md", "docs/chat.md", "docs/cost.md", "docs/doors.md", "docs/install.md", "docs/move.md",
    "docs/why-miss.md", "docs/conversations.md", "docs/clients.md", "docs/reminders.md",
    "docs/coming-from.md",
)  # fmt: skip
OWN_WORDS = (
    "lowered?", "lowers", "room", "floor", "ladder", "envelope", "epochs?", "folds?", "folded", "memos?",
    "wordings?", "segments?", "dialects?", "kinds?", "markers?", "layers?",
)  # fmt: skip
"""Words that only contributors need, as patterns, and the pages that have none of them."""

_CODE_BLOCK = re.compile(r"^(```+|~~~+).*?^\1[`~]*\s*$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_INLINE_CODE = re.compile(r"`+[^`\n]+(?:\n[^`\n]+)?`+")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_EMPHASIS = re.compile(r"\*\*?|__")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]*(?:[A-Z0-9`*]|lamina\b))")
_LIST_ITEM = re.compile(r"^\s*(?:[-*+]|[0-9]+\.)\s+")
_WORD = re.compile(r"[^\s]*[A-Za-z0-9][^\s]*")
_EXPLAINED = re.compile(r"`[^`\n]*`|\]\([^)]*\)|\*[a-z ]+\*")
_OWN_WORD = re.compile(rf"\b(?:{'|'.join(OWN_WORDS)})\b", re.IGNORECASE)


class Sentence(NamedTuple):
    page: str
    text: str

    @property
    def words(self) -> int:
        return len(_WORD.findall(self.text))


class Problem(NamedTuple):
    """A construction that is banned, where it stands, and what to write instead."""

    page: str
    sentence: str
    hint: str


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="prose", description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only say what passes a limit")
    parser.add_argument("--longest", type=int, default=15, help="how many long sentences are printed (15)")
    arguments = parser.parse_args(words)
    pages = list(find_pages())
    sentences = [sentence for page in pages for sentence in read_sentences(page)]
    if not arguments.check:
        _print_pages(pages)
        for sentence in sorted(sentences, key=lambda each: -each.words)[: arguments.longest]:
            print(f"{sentence.words:>4} {sentence.page}: {sentence.text}")
    complaints = [*find_complaints(sentences), *find_long_pages(pages), *find_own_words(FIRST_PAGES)]
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return 1 if complaints else 0


def find_pages() -> Iterator[Path]:
    """The pages that people read. The changelog is a list of names, and its sentences are not counted."""
    for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "RELEASING.md"):
        yield ROOT / name
    yield from sorted((ROOT / "docs").rglob("*.md"))


def read_sentences(page: Path) -> list[Sentence]:
    """The sentences of one page."""
    name = page.relative_to(ROOT).as_posix()
    return [Sentence(name, text) for text in split_sentences(page.read_text())]


def split_sentences(markdown: str) -> list[str]:
    """The sentences of running text in a Markdown page."""
    text = _CODE_BLOCK.sub("\n\n", markdown)
    text = _COMMENT.sub("", text)
    sentences: list[str] = []
    for paragraph in _find_paragraphs(text):
        plain = _LINK.sub(r"\1", paragraph)
        plain = _INLINE_CODE.sub(_one_word, plain)
        plain = _EMPHASIS.sub("", plain)
        pieces = [" ".join(piece.split()) for piece in _SENTENCE_END.split(plain)]
        sentences += [piece for piece in pieces if len(_WORD.findall(piece)) > 1]
    return sentences


def _find_paragraphs(text: str) -> Iterator[str]:
    """Paragraphs and items of lists; not headings, tables or quoted blocks of other pages."""
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        begins_item = _LIST_ITEM.match(line) is not None
        is_apart = not line.strip() or line.lstrip().startswith(("#", "|", "<", ":::", "!!!", "==="))
        if (begins_item or is_apart) and lines:
            yield " ".join(lines)
            lines = []
        if not is_apart:
            lines.append(_LIST_ITEM.sub("", line).strip())


def _one_word(match: re.Match[str]) -> str:
    """Code inside a sentence counts as one word."""
    return re.sub(r"\s+", "_", match[0])


def find_complaints(sentences: Sequence[Sentence]) -> Iterator[str]:
    """What passes a limit, in words."""
    lengths = sorted(sentence.words for sentence in sentences)
    median = share_of(lengths, 0.5)
    long = share_of(lengths, 0.9)
    if median > MEDIAN_LIMIT:
        yield f"the median sentence has {median} words, over {MEDIAN_LIMIT}: write shorter sentences"
    if long > LONG_LIMIT:
        yield f"one sentence in ten has more than {long} words, over {LONG_LIMIT}: split the longest"
    for sentence in sentences:
        if sentence.words > LONGEST:
            yield f"{sentence.page}: a sentence of {sentence.words} words: {sentence.text[:80]}…"
    for problem in find_banned(sentences):
        yield f"{problem.page}: {problem.hint}: {problem.sentence[:120]}"


def find_long_pages(pages: Sequence[Path]) -> Iterator[str]:
    for page in pages:
        name = page.relative_to(ROOT).as_posix()
        words = len(page.read_text(encoding="utf-8").split())
        if words > LONGEST_PAGE and name not in GENERATED:
            yield f"{name}: {words:,} words, over {LONGEST_PAGE:,}: split it, or move a part to notes/"


def find_own_words(pages: Sequence[str]) -> Iterator[str]:
    for name in pages:
        prose = _EXPLAINED.sub(" ", _CODE_BLOCK.sub(" ", (ROOT / name).read_text(encoding="utf-8")))
        for word in sorted({match[0].lower() for match in _OWN_WORD.finditer(prose)}):
            yield f"{name}: {word!r} is a word that only contributors need: say it plainly, or explain it"


def find_banned(sentences: Sequence[Sentence]) -> Iterator[Problem]:
    for sentence in sentences:
        for pattern, hint in BANNED.items():
            if re.search(pattern, sentence.text):
                yield Problem(sentence.page, sentence.text, hint)


def share_of(lengths: Sequence[int], share: float) -> int:
    """The length that this share of the lengths does not pass."""
    if not lengths:
        return 0
    return lengths[min(int(share * len(lengths)), len(lengths) - 1)]


def _print_pages(pages: Sequence[Path]) -> None:
    print(f"{'page':<36}{'sentences':>10}{'median':>8}{'9 in 10':>9}{'longest':>9}")
    every: list[int] = []
    for page in pages:
        lengths = sorted(sentence.words for sentence in read_sentences(page))
        every += lengths
        print(_row(page.relative_to(ROOT).as_posix(), lengths))
    print(_row("all pages", sorted(every)))
    print()


def _row(name: str, lengths: Sequence[int]) -> str:
    longest = max(lengths, default=0)
    return f"{name:<36}{len(lengths):>10}{share_of(lengths, 0.5):>8}{share_of(lengths, 0.9):>9}{longest:>9}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
