"""Documents that were made to be read for hours, and some that were not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lamina.errors import BadInput
from lamina.workspace import documents
from lamina.workspace.documents import text_in


@pytest.fixture
def pypdf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of that name, whose `PdfReader` is what a test writes."""
    folder = tmp_path / "packages" / "pypdf"
    folder.mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(folder.parent), *sys.path])
    return folder / "__init__.py"


PAGE = """
class Page:
    def __init__(self, text): self.text = text
    def extract_text(self): return self.text
class PdfReader:
    def __init__(self, file): self.data = file.read()
    @property
    def pages(self): return {pages}
"""


def test_text_of_a_pdf_comes_page_by_page(pypdf: Path) -> None:
    pypdf.write_text(PAGE.format(pages="[Page('one é'), Page(self.data.decode()), Page('\\ud800')]"))
    assert text_in("x", b"%PDF-1.7 two") == "one é\n\n%PDF-1.7 two\n\n?"


def test_of_a_long_pdf_only_the_first_pages_are_read(pypdf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pypdf.write_text(PAGE.format(pages="iter(lambda: Page('page'), None)"))
    monkeypatch.setattr(documents, "PAGES", 3)
    assert text_in("x", b"%PDF-") == "page\n\npage\n\npage"
    monkeypatch.setattr(documents, "CHARACTERS", 6)
    assert text_in("x", b"%PDF-") == "page\n\npa"


@pytest.mark.parametrize(
    ("pages", "problem"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("(lambda nested: nested(nested))(lambda nested: nested(nested))", "RecursionError"),
        ("[Page('x' * (4 << 30))]", "MemoryError|ended after"),
        ("[Page(' ')]", "there is no text in it"),
        ("__import__('os').kill(__import__('os').getpid(), 9)", "ended after"),
    ],
    ids=["damaged", "nested", "memory", "no text", "killed"],
)
def test_a_pdf_that_cannot_be_read_says_why(pypdf: Path, pages: str, problem: str) -> None:
    pypdf.write_text(PAGE.format(pages=pages))
    with pytest.raises(BadInput, match=problem) as refused:
        text_in("a.pdf", b"%PDF-1.7")
    assert refused.value.place == "a.pdf"


def test_a_pdf_that_is_read_for_ever_is_given_up_and_its_reader_is_gone(pypdf: Path) -> None:
    """The reader says who it is before it begins; once the call returns, there is no such process."""
    pid = pypdf.with_name("pid")
    pypdf.write_text(
        f"import os, pathlib\npathlib.Path({str(pid)!r}).write_text(str(os.getpid()))\nwhile True: pass\n"
    )
    for seconds in (1.0, 4.0, 16.0):  # on a busy machine it may not have begun after the first
        with pytest.raises(BadInput, match=f"more than {seconds:g} seconds"):
            text_in("a.pdf", b"%PDF-1.7", seconds=seconds)
        if pid.exists():
            break
    assert not Path(f"/proc/{pid.read_text()}").exists() or sys.platform != "linux"


def test_a_pdf_says_which_package_would_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)
    with pytest.raises(BadInput, match=r"install lamina-context\[search\]"):
        text_in("a.pdf", b"%PDF-1.7 ...")
