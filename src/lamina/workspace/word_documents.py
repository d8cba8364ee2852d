"""Reads the text of a Word document (.docx), in one pass over its XML.

Time and memory grow with the size of the unpacked file, and with nothing that the file says about itself: no
grid span, no relationship and no entity makes the reader do more. Paragraphs and tables come in order; a row
of a table is one line. Headers, footnotes, comments and deleted text are left out. Nothing is opened here.
"""

from __future__ import annotations

import contextlib
import io
import zipfile
import zlib
from itertools import chain
from xml.parsers import expat

from lamina.core.text.paths import shortest_path
from lamina.errors import BadInput

UNPACKED = 64 * 2**20
"""Bytes of one part of the package, unpacked. A small file can hold terabytes of zeros."""

ELEMENTS = 1_000_000
"""Elements of the XML: several times as many as a long book has. Each costs a call of a function here."""

TABLES_DEEP = 16
"""How deep tables may be nested. Each level copies the text below it once."""

_WORD = frozenset(
    (
        "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
        "http://purl.oclc.org/ooxml/wordprocessingml/main",
    )
)
_COMPATIBILITY = "http://schemas.openxmlformats.org/markup-compatibility/2006"
_RELATIONSHIPS = "_rels/.rels"
_USUAL_PLACE = "word/document.xml"
_UNPACKABLE = frozenset((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError, ValueError)
_SPACING = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_JOINTS = {"tc": "\n", "tr": " | ", "tbl": "\n"}
_SKIPPED = frozenset(("del", "moveFrom"))


class _Enough(Exception):
    """Enough text has been read."""


def read_word_document(data: bytes, *, most: int) -> str:
    """The text, at most about `most` characters. Raises BadInput for a file that cannot be read."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as package:
            xml = _read_part(package, _main_part(package))
    except BadInput:
        raise
    except _DAMAGED as error:
        raise BadInput(f"the package cannot be opened: {error!s:.200}") from None
    body = _Body(most)
    with contextlib.suppress(_Enough):
        _parse(xml, body)
    return body.text()[:most]


def _main_part(package: zipfile.ZipFile) -> str:
    """Where the document itself is in the package: as its relationships say, else at the usual place."""
    if _RELATIONSHIPS not in package.namelist():
        return _USUAL_PLACE
    finder = _MainPartFinder()
    _parse(_read_part(package, _RELATIONSHIPS), finder)
    if not finder.target:
        return _USUAL_PLACE
    return shortest_path(finder.target.lstrip("/"))


def _read_part(package: zipfile.ZipFile, name: str) -> bytes:
    """Unpack one part of the package, up to a size."""
    try:
        info = package.getinfo(name)
    except KeyError:
        raise BadInput(f"there is no {name!r:.100} in it") from None
    if info.compress_type not in _UNPACKABLE:
        raise BadInput("it is packed in a way that Word does not use")
    with package.open(info) as packed:
        unpacked = packed.read(UNPACKED + 1)
    if len(unpacked) > UNPACKED:
        raise BadInput(f"it unpacks to more than {UNPACKED:,} bytes", hint="give the text itself")
    return unpacked


class _MainPartFinder:
    """Finds the target of the relationship that names the main document."""

    def __init__(self) -> None:
        self.target = ""

    def start(self, _: str, tag: str, attributes: dict[str, str]) -> None:
        """Remember the first part that is named as the document itself."""
        if tag != "Relationship" or self.target:
            return
        if attributes.get("Type", "").endswith("/officeDocument"):
            self.target = attributes.get("Target", "")

    def end(self, namespace: str, tag: str) -> None:
        pass

    def characters(self, text: str) -> None:
        pass


class _Body:
    """Collects paragraphs and tables while the XML is parsed.

    `_blocks` has a list of blocks for the body and for each open cell, the innermost last. `_rows` has the
    cells of each open row, `_tables` the rows of each open table.
    """

    def __init__(self, most: int) -> None:
        self._left = most
        self._blocks: list[list[str]] = [[]]
        self._rows: list[list[str]] = []
        self._tables: list[list[str]] = []
        self._collected = {"tc": self._blocks, "tr": self._rows, "tbl": self._tables}
        self._around = {"tc": self._rows, "tr": self._tables, "tbl": self._blocks}
        self._words: list[str] = []
        self._open = {"t": 0, "r": 0}  # texts and runs
        self._skipped = 0

    def text(self) -> str:
        """Everything so far, even if the end of the file was not reached."""
        self._end_paragraph()
        open_cells = chain.from_iterable(self._blocks[1:])
        open_rows = chain.from_iterable(self._rows)
        open_tables = chain.from_iterable(self._tables)
        return "\n\n".join([*self._blocks[0], *open_tables, *open_rows, *open_cells])

    def start(self, namespace: str, tag: str, _: dict[str, str]) -> None:
        """A start tag: text, a run of text, spacing, or a cell, row or table, which is collected from now on.

        Elements that are skipped are skipped with everything in them.
        """
        if _is_skipped(namespace, tag):
            self._skipped += 1
        if namespace not in _WORD or self._skipped:
            return
        if tag in self._open:
            self._open[tag] += 1
        elif tag in _SPACING and self._open["r"]:  # a tab outside of a run is a setting of the paragraph
            self._add(_SPACING[tag])
        elif tag in self._collected:
            if len(self._tables) == TABLES_DEEP and tag == "tbl":
                raise BadInput(f"tables in tables, more than {TABLES_DEEP} deep")
            self._collected[tag].append([])

    def end(self, namespace: str, tag: str) -> None:
        """An end tag. A cell becomes part of its row, a row of its table, a table a block of its cell."""
        if _is_skipped(namespace, tag):
            self._skipped -= 1
            return
        if namespace not in _WORD or self._skipped:
            return
        if tag in self._open:
            self._open[tag] -= 1
        elif tag == "p":
            self._end_paragraph()
        elif tag in self._collected:
            text = _JOINTS[tag].join(self._collected[tag].pop())
            around = self._around[tag] or self._blocks  # a cell outside of any row is a block
            around[-1].append(text)

    def characters(self, text: str) -> None:
        """Text between tags, of which only that in text elements is shown."""
        if self._open["t"] and not self._skipped:
            self._add(text)

    def _add(self, text: str) -> None:
        """Add text to the paragraph, and stop reading when the document has enough of it."""
        self._words.append(text)
        self._left -= len(text)
        if self._left < 0:
            raise _Enough

    def _end_paragraph(self) -> None:
        """End a paragraph. Blank ones are left out."""
        paragraph = "".join(self._words)
        self._words.clear()
        if paragraph.strip(" \t\n"):
            self._blocks[-1].append(paragraph)


def _is_skipped(namespace: str, tag: str) -> bool:
    """Whether an element repeats text from elsewhere, or holds text that was deleted."""
    if namespace == _COMPATIBILITY:
        return tag == "Fallback"
    return namespace in _WORD and tag in _SKIPPED


def _parse(xml: bytes, reader: _Body | _MainPartFinder) -> None:
    """Pass each element to a reader. A document type, which could define entities, is refused.

    The parser gets everything at once: with several pieces it would read a long token again for each.
    """
    parser = expat.ParserCreate(namespace_separator=" ")
    elements = 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal elements
        elements += 1
        if elements > ELEMENTS:
            raise BadInput(f"its XML has more than {ELEMENTS:,} elements", hint="give the text itself")
        namespace, _, tag = name.rpartition(" ")
        reader.start(namespace, tag, attributes)

    def end(name: str) -> None:
        namespace, _, tag = name.rpartition(" ")
        reader.end(namespace, tag)

    def refuse(*_: object) -> None:
        raise BadInput("its XML has a document type, which Word does not write")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = reader.characters
    parser.StartDoctypeDeclHandler = refuse
    parser.buffer_text = True
    try:
        # all at once: with several pieces the parser would read a long token again for each
        parser.Parse(xml, True)  # noqa: FBT003 - this is all of it
    except expat.ExpatError as error:
        raise BadInput(f"its XML is damaged: {error}") from None
