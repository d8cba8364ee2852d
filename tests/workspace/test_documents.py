"""Documents that were made to be read for hours, and some that were not."""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.errors import BadInput
from lamina.workspace import documents, pdf_documents, word_documents
from lamina.workspace.documents import text_in
from tests.bounded import bounded_work

MAIN = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
RELATIONSHIPS = (
    '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
    '<Relationship Id="r1" '
    'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" '
    'Target="{target}"/></Relationships>'
)


def package(xml: str | bytes, *, at: str = "word/document.xml", packing: int = zipfile.ZIP_DEFLATED) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", packing) as packed:
        packed.writestr("_rels/.rels", RELATIONSHIPS.format(target=at))
        packed.writestr(at, xml)
    return data.getvalue()


def word(body: str) -> bytes:
    return package(f'<w:document xmlns:w="{MAIN}"><w:body>{body}</w:body></w:document>')


def run(text: str) -> str:
    return f"<w:r><w:t>{text}</w:t></w:r>"


def paragraph(*texts: str) -> str:
    return f"<w:p>{''.join(map(run, texts))}</w:p>"


def cell(*texts: str) -> str:
    return f"<w:tc>{''.join(map(paragraph, texts))}</w:tc>"


def table(*rows: str) -> str:
    return f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in rows)}</w:tbl>"


def test_paragraphs_and_tables_come_in_order_and_a_row_is_a_line() -> None:
    body = (
        paragraph("One ", "two")
        + paragraph(" ")
        + table(cell("a") + cell("b", "c"), cell("d") + cell())
        + paragraph("last")
    )
    assert text_in("a.docx", word(body)) == "One two\n\na | b\nc\nd | \n\nlast"


def test_tabs_breaks_links_and_insertions_are_text_and_settings_and_deletions_are_not() -> None:
    body = (
        "<w:p><w:pPr><w:tabs><w:tab w:val='left'/></w:tabs></w:pPr>"
        "<w:r><w:t>a</w:t><w:tab/><w:t>b</w:t><w:br/><w:t>c</w:t><w:noBreakHyphen/></w:r>"
        f"<w:hyperlink>{run('link')}</w:hyperlink><w:ins>{run(' new')}</w:ins>"
        f"<w:del><w:r><w:delText>old</w:delText></w:r></w:del><w:moveFrom>{run('gone')}</w:moveFrom>"
        "<w:r><w:instrText>PAGE</w:instrText></w:r></w:p>"
    )
    assert text_in("a.docx", word(body)) == "a\tb\nc-link new"


def test_a_text_box_that_is_written_twice_is_read_once() -> None:
    compatibility = "http://schemas.openxmlformats.org/markup-compatibility/2006"
    box = (
        f'<w:p><w:r><mc:AlternateContent xmlns:mc="{compatibility}"><mc:Choice Requires="x">{run("box")}'
        f"</mc:Choice><mc:Fallback>{run('box')}</mc:Fallback></mc:AlternateContent></w:r></w:p>"
    )
    assert text_in("a.docx", word(box)) == "box"


def test_the_document_is_where_the_package_says() -> None:
    xml = f'<w:document xmlns:w="{MAIN}">{paragraph("elsewhere")}</w:document>'
    assert text_in("a.docx", package(xml, at="word/document2.xml")) == "elsewhere"


def test_a_table_in_a_cell_is_read_too() -> None:
    inner = f"<w:tc>{paragraph('before')}{table(cell('x') + cell('y'))}</w:tc>"
    assert text_in("a.docx", word(table(inner + cell("z")))) == "before\nx | y | z"


GRID = '<w:tc><w:tcPr><w:gridSpan w:val="999999999"/></w:tcPr><w:p><w:r><w:t>x</w:t></w:r></w:p></w:tc>'


@pytest.mark.parametrize(
    "body",
    [
        table(GRID, *[GRID] * 200),
        table(*[cell("a") + cell("b")] * 20_000),
        "<w:p>" * 100_000,
        "<w:p>" * 100_000 + run("x") + "</w:p>" * 100_000,
        paragraph(*["x" * 10] * 50_000),
        f"<w:p w:a='{'a' * 5_000_000}'>{run('x')}</w:p>",
        "<w:tc/>" * 200_000,
    ],
    ids=["wide cells", "many rows", "unclosed", "deep", "many runs", "long attribute", "cells in no row"],
)
def test_no_word_document_makes_more_work_than_its_size(body: str) -> None:
    with bounded_work():
        try:
            assert text_in("a.docx", word(body)).strip()
        except BadInput as refused:
            assert refused.place == "a.docx"  # noqa: PT017 - or it was read


BOMB = (
    "<!DOCTYPE x [<!ENTITY a 'aaaaaaaaaa'>"
    + "".join(f"<!ENTITY {to} '{f'&{of};' * 10}'>" for of, to in zip("abcdefgh", "bcdefghi", strict=True))
    + f"]><w:document xmlns:w='{MAIN}'><w:p><w:r><w:t>&i;</w:t></w:r></w:p></w:document>"
)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (package(BOMB), "document type"),
        (word(f"<w:p/>{'<w:tbl>' * 20}{'</w:tbl>' * 20}"), "tables in tables"),
        (package("<w:document"), "its XML is damaged"),
        (package("<a/>", packing=zipfile.ZIP_LZMA), "packed in a way"),
        (package("<a/>", at="elsewhere.xml").replace(b"elsewhere.xml", b"nowhere__.xml"), "there is no"),
        (b"PK\3\4...", "cannot be opened"),
        (word(paragraph(" ")), "there is no text in it"),
    ],
    ids=["entities", "tables", "cut off", "packing", "missing", "no package", "no text"],
)
def test_a_word_document_that_cannot_be_read_says_why(data: bytes, problem: str) -> None:
    with bounded_work(), pytest.raises(BadInput, match=problem) as refused:
        text_in("a.docx", data)
    assert refused.value.place == "a.docx"
    assert refused.value.hint


def test_a_package_that_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_documents, "UNPACKED", 100_000)
    with pytest.raises(BadInput, match="more than 100,000 bytes"):
        text_in("a.docx", package(" " * 100_001))


def test_more_elements_than_a_book_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_documents, "ELEMENTS", 1_000)
    with pytest.raises(BadInput, match="more than 1,000 elements"):
        text_in("a.docx", word("<w:p/>" * 1_001))


def test_a_long_document_is_read_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "CHARACTERS", 10)
    assert (
        text_in("a.docx", word(paragraph("12345") + table(cell("6789") + cell("abcdef")))) == "12345\n\n678"
    )


@given(st.binary(max_size=400), st.integers(0, 400))
def test_a_damaged_word_document_is_refused_or_read(noise: bytes, at: int) -> None:
    whole = word(paragraph("text") + table(cell("a")))
    try:
        text_in("a.docx", whole[:at] + noise + whole[at + len(noise) :])
    except BadInput as refused:
        assert refused.place == "a.docx"  # noqa: PT017 - or it was read


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
    monkeypatch.setattr(pdf_documents, "PAGES", 3)
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
    with pytest.raises(BadInput, match="more than 1 seconds"):
        text_in("a.pdf", b"%PDF-1.7", seconds=1.0)
    assert not Path(f"/proc/{pid.read_text()}").exists() or sys.platform != "linux"


def test_a_pdf_says_which_package_would_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)
    with pytest.raises(BadInput, match=r"install lamina-context\[documents\]"):
        text_in("a.pdf", b"%PDF-1.7 ...")
