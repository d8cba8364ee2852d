"""Reads the bytes of a file as text: UTF-8 as it is, and PDF if `pypdf` is installed.

A file without text raises BadInput, which says why and which package would help. Nothing is opened here:
bytes come in, text goes out. A reader has a limit on its work that no file can lift.

A PDF is read in a process of its own, since it can make its reader work without limit.
"""

from __future__ import annotations

import codecs
from importlib.util import find_spec

from lamina.core.text.characters import is_blank
from lamina.errors import BadInput
from lamina.workspace.separate_process import ChildFailed, run_script

CHARACTERS = 8 * 2**20
"""Text that is taken out of one document."""

SECONDS = 20.0
"""Time on the clock for one document that another process reads."""

PAGES = 2_000
"""Pages of a PDF that are read."""

_SCRIPT = """
import io, logging
logging.disable(logging.CRITICAL)
import pypdf

pages, characters = arguments
texts = []
for number, page in enumerate(pypdf.PdfReader(io.BytesIO(sys.stdin.buffer.read())).pages):
    if number == pages or characters <= 0:
        break
    text = str(page.extract_text())
    texts.append(text[:characters])
    characters -= len(text)
sys.stdout.buffer.write("\\n\\n".join(texts).encode("utf-8", "replace"))
"""


def text_in(path: str, data: bytes, *, seconds: float = SECONDS) -> str:
    """The text of a file. Its first bytes say whether it is a PDF.

    `seconds` is what a reader in another process may take, at most `SECONDS`.
    """
    if not data.startswith(b"%PDF-"):
        return _decode(path, data)
    try:
        text = read_pdf(data, most=CHARACTERS, seconds=min(seconds, SECONDS))
    except BadInput as error:
        hint = error.hint or "check the file"
        raise BadInput(error.problem, place=path, hint=hint) from None
    if is_blank(text):
        raise BadInput("there is no text in it", place=path, hint="it may hold pictures only")
    return text


def _decode(path: str, data: bytes) -> str:
    """The text of a file that is not a document. Binary files are refused."""
    marked = _decode_marked(data)
    if marked is not None:
        return marked
    if b"\0" in data[:8192]:
        raise BadInput("it is binary", place=path, hint="only text and PDF are read; save it as one of them")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadInput("it is not UTF-8 text", place=path, hint="only text is read") from None


def _decode_marked(data: bytes) -> str | None:
    """Text that begins with a byte order mark; None if it does not, or is not what the mark says."""
    for mark, encoding in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if data.startswith(mark):
            try:
                return data.decode(encoding)
            except UnicodeDecodeError:
                return None
    return None


def read_pdf(data: bytes, *, most: int, seconds: float) -> str:
    """The text, page by page, at most about `most` characters. Raises BadInput after `seconds` without it."""
    if find_spec("pypdf") is None:
        raise BadInput("its text needs the package 'pypdf'", hint="install lamina-context[search]")
    try:
        text = run_script(_SCRIPT, data, seconds=seconds, arguments=(PAGES, most))
    except ChildFailed as failed:
        hint = "check the file"
        if failed.late:
            hint = "attach a part of it, or its text"
        raise BadInput(f"no text can be had: {failed.why}", hint=hint) from None
    return text.decode()
