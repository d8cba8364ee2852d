"""Counts words that only contributors need on the pages that users read first.

    python -m tools.words              a table: page, words that need an explanation, and how often
    python -m tools.words --rev REV    the same beside an older revision
    python -m tools.words --check      fails if such a word stands on one of these pages

The pages are those of the first steps, and those of tasks. Code is not counted: a name in it is a name. A
word in *italics* is one that the page explains.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = (
    "README.md", "docs/quickstart.md", "docs/concepts.md", "docs/wrap.md", "docs/run.md", "docs/gateway.md",
    "docs/inspector.md", "docs/chat.md", "docs/replay.md", "docs/doors.md", "docs/install.md", "docs/move.md",
    "docs/why-miss.md", "docs/conversations.md", "docs/clients.md", "docs/reminders.md",
    "docs/coming-from.md",
)  # fmt: skip
OWN = (
    "lowered?", "lowers", "room", "floor", "ladder", "envelope", "epochs?", "folds?", "folded", "memos?",
    "wordings?", "segments?", "dialects?", "kinds?", "markers?", "layers?",
)  # fmt: skip

_FENCE = re.compile(r"^(```+).*?^\1`*\s*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`|\]\([^)]*\)|\*[a-z ]+\*")
_WORD = re.compile(rf"\b(?:{'|'.join(OWN)})\b", re.IGNORECASE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rev", default="", help="a revision of git to compare with")
    parser.add_argument("--check", action="store_true", help="fail if there is such a word")
    arguments = parser.parse_args()
    found = 0
    print(f"{'page':<28}{'before' if arguments.rev else '':>8}{'now':>6}  most often")
    for page in PAGES:
        now = count_own_words((ROOT / page).read_text(encoding="utf-8"))
        before = ""
        if arguments.rev:
            before = str(sum(count_own_words(_read_revision(arguments.rev, page)).values()))
        most = ", ".join(f"{word} {count}" for word, count in now.most_common(4))
        found += sum(now.values())
        print(f"{page:<28}{before:>8}{sum(now.values()):>6}  {most}")
    return int(arguments.check and found > 0)


def count_own_words(text: str) -> Counter[str]:
    """How often each word that needs an explanation stands in the prose of a page."""
    prose = _CODE.sub(" ", _FENCE.sub(" ", text))
    return Counter(match[0].lower() for match in _WORD.finditer(prose))


def _read_revision(revision: str, page: str) -> str:
    command = ["git", "show", f"{revision}:{page}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
