"""Bytes of a file as text: UTF-8 as it is, PDF and office documents where their packages are installed.

What has no text is refused as BadInput that says why, and which package would help. It opens nothing: bytes
come in, text goes out.
"""

from __future__ import annotations

import codecs
import io
import zipfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import PurePosixPath
from typing import Any

from lamina.errors import BadInput
from lamina.text.characters import is_blank, lower_ascii

PAGES = 2_000
"""Pages of a PDF that are read."""

CHARACTERS = 8 * 2**20
"""Text that is taken out of one document."""

UNPACKED = 64 * 2**20
"""Bytes that a packed document may hold: a small file can say that it holds terabytes."""


def text_in(path: str, data: bytes) -> str:
    """The text of a file; which reader it needs, its name and first bytes say."""
    suffix = lower_ascii(PurePosixPath(path).suffix)
    if data.startswith(b"%PDF-"):
        return _extracted(path, data, "pypdf", _pdf, extra="documents")
    if suffix == ".docx" and data.startswith(b"PK"):
        return _extracted(path, data, "docx", _docx, extra="documents")
    return _plain(path, data)


def _plain(path: str, data: bytes) -> str:
    for mark, name in (
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if data.startswith(mark):
            try:
                return data.decode("utf-8-sig" if name == "utf-8" else name)
            except UnicodeDecodeError:
                break
    try:
        if b"\0" in data[:8192]:
            raise BadInput("it is binary", place=path, hint="only text is read")
        return data.decode()
    except UnicodeDecodeError:
        raise BadInput("it is not UTF-8 text", place=path, hint="only text is read") from None


def _extracted(
    path: str, data: bytes, package: str, reader: Callable[[Any, bytes], Iterator[str]], *, extra: str
) -> str:
    try:
        module = import_module(package)
    except ImportError:
        hint = f"install lamina[{extra}]"
        raise BadInput(f"its text needs the package {package!r}", place=path, hint=hint) from None
    try:
        text = _bounded(reader(module, data))
    except BadInput:
        raise
    except Exception as error:  # noqa: BLE001 - these packages raise anything on a damaged file
        raise BadInput(f"no text can be had: {error!s:.200}", place=path, hint="check the file") from None
    if is_blank(text):
        raise BadInput("there is no text in it", place=path, hint="it may hold pictures only")
    return text


def _bounded(pieces: Iterator[str]) -> str:
    kept: list[str] = []
    left = CHARACTERS
    for piece in pieces:
        kept.append(piece[:left])
        left -= len(piece)
        if left <= 0:
            break
    return "\n\n".join(kept)


def _pdf(pypdf: Any, data: bytes) -> Iterator[str]:
    for number, page in enumerate(pypdf.PdfReader(io.BytesIO(data)).pages):
        if number == PAGES:
            return
        yield str(page.extract_text())


def _docx(docx: Any, data: bytes) -> Iterator[str]:
    with zipfile.ZipFile(io.BytesIO(data)) as packed:
        if sum(item.file_size for item in packed.infolist()) > UNPACKED:
            raise BadInput(f"it unpacks to more than {UNPACKED:,} bytes", hint="give the text itself")
    document = docx.Document(io.BytesIO(data))
    for block in document.iter_inner_content():
        if hasattr(block, "rows"):
            yield "\n".join(" | ".join(cell.text for cell in row.cells) for row in block.rows)
        elif not is_blank(block.text):
            yield str(block.text)
