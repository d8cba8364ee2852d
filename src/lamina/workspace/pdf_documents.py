"""Reads the text of a PDF by `pypdf`, in a process of its own: a PDF can make its reader work without limit.

Nothing is opened here: bytes come in, text goes out.
"""

from __future__ import annotations

from importlib.util import find_spec

from lamina.errors import BadInput
from lamina.workspace.separate_process import ChildFailed, run_script

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


def read_pdf(data: bytes, *, most: int, seconds: float) -> str:
    """The text, page by page, at most about `most` characters. Raises BadInput after `seconds` without it."""
    if find_spec("pypdf") is None:
        raise BadInput("its text needs the package 'pypdf'", hint="install lamina-context[search]")
    try:
        text = run_script(_SCRIPT, data, seconds=seconds, arguments=(PAGES, most))
    except ChildFailed as failed:
        hint = "attach a part of it, or its text" if failed.late else "check the file"
        raise BadInput(f"no text can be had: {failed.why}", hint=hint) from None
    return text.decode()
