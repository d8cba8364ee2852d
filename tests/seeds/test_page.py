"""The page about the source systems and these tests speak of the same cases."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "notes" / "seeds.md"


def test_every_case_with_a_verdict_has_a_test_and_every_test_a_case() -> None:
    rows = re.findall(
        r"^\| (S\d-\d\d) \|[^|]+\| (satisfied|overridden|not here) \|", PAGE.read_text("utf-8"), re.MULTILINE
    )
    judged = {case.lower() for case, verdict in rows if verdict != "not here"}
    tests = "\n".join(path.read_text("utf-8") for path in HERE.glob("test_0*.py"))
    named = re.findall(r"\b(?:test_)?(s\d)_(\d\d)(?:_(\d\d)_)?", tests)
    assert judged == {f"{system}-{n}" for system, *numbers in named for n in numbers if n}
    assert len(rows) == len(dict(rows))
