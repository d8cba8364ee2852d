"""What is sent of a segment in each form, to the letter."""

from __future__ import annotations

import json

import pytest

from lamina import Form, Role
from lamina.core import Document, Image, Part, Raw, Text, ToolCall, ToolResult, Wording, text_of
from lamina.core.values import Digest
from lamina.core.wording import ARGUMENT_LIMIT, PLAIN, TAGGED
from lamina.segments import call, file, image, note, result, segment, selected_text

CONTENT = Digest("0123456789ab" + "0" * 52)
HANDLE = 'recall("kaerukz4jvmaaaaaa")'


def only(parts: tuple[Part, ...]) -> str:
    (part,) = parts
    assert isinstance(part, Text)
    return part.text


LONG = "\n".join(f"line {number}" for number in range(1, 401))
SHORTENED = (
    "line 1\nline 2\nline 3\nline 4\nline 5\n[... 391 lines left out ...]\n"
    "line 397\nline 398\nline 399\nline 400"
)
ARGUMENTS = {"path": "a.txt", "content": "x" * 300, "rows": [1, 2]}
PICTURE = image(data="iVBORw0KGgo=", media_type="image/png")


def test_a_file_in_each_form() -> None:
    given = file("docs/a.txt", LONG)
    whole = f'<file_context path="docs/a.txt">\n{LONG}\n</file_context>'
    assert only(PLAIN(given, Form.FULL, CONTENT)) == whole
    assert only(PLAIN(given, Form.COMPACT, CONTENT, limit=105)) == (
        f'<file_context path="docs/a.txt">\n{SHORTENED}\n'
        f"[shortened: file docs/a.txt · 3,491 bytes · {HANDLE}]\n</file_context>"
    )
    assert only(PLAIN(given, Form.STUB, CONTENT)) == f"[trimmed: file docs/a.txt · 3,491 bytes · {HANDLE}]"
    assert PLAIN(given, Form.OMITTED, CONTENT) == ()


def test_a_note_in_full_has_its_attributes_as_elements() -> None:
    assert only(PLAIN(note("docs/plan.md", "Ship it."), Form.FULL, CONTENT)) == (
        "<note_context>\n<title>plan</title>\n<path>docs/plan.md</path>\n"
        "<content>\nShip it.\n</content>\n</note_context>"
    )
    assert only(PLAIN(selected_text("this"), Form.FULL, CONTENT)) == (
        "<selected_text>\n<content>\nthis\n</content>\n</selected_text>"
    )


def test_a_result_in_each_form() -> None:
    given = result(LONG, id="c1", name="read_file", error=True)

    def answer(text: str) -> tuple[Part, ...]:
        return (ToolResult(id="c1", name="read_file", content=(Text(text),), error=True),)

    assert PLAIN(given, Form.FULL, CONTENT) is given.parts
    shortened = f"{SHORTENED}\n[shortened: read_file · 3,491 bytes · {HANDLE}]"
    assert PLAIN(given, Form.COMPACT, CONTENT, limit=105) == answer(shortened)
    assert PLAIN(given, Form.STUB, CONTENT) == answer(f"[trimmed: read_file · 3,491 bytes · {HANDLE}]")
    assert PLAIN(given, Form.OMITTED, CONTENT) == ()


def test_a_call_in_each_form() -> None:
    given = call("write", ARGUMENTS, id="c1")
    short = f"[trimmed: 300 bytes · {HANDLE}]"
    lowered = json.dumps(ARGUMENTS | {"content": short}, ensure_ascii=False, separators=(",", ":"))
    assert PLAIN(given, Form.FULL, CONTENT) is given.parts
    for form in (Form.COMPACT, Form.STUB):
        assert PLAIN(given, form, CONTENT) == (ToolCall(id="c1", name="write", arguments=lowered),)
    middling = call("write", {"text": "y" * ARGUMENT_LIMIT}, id="c1")
    (kept,) = PLAIN(middling, Form.COMPACT, CONTENT)
    (gone,) = PLAIN(middling, Form.STUB, CONTENT)
    assert isinstance(kept, ToolCall)
    assert isinstance(gone, ToolCall)
    assert json.loads(kept.arguments) == {"text": "y" * ARGUMENT_LIMIT}
    assert json.loads(gone.arguments) == {"text": f"[trimmed: 200 bytes · {HANDLE}]"}


def test_an_image_in_each_form() -> None:
    assert PLAIN(PICTURE, Form.FULL, CONTENT) is PICTURE.parts
    assert only(PLAIN(PICTURE, Form.COMPACT, CONTENT)) == (
        f"[Image content]\n[shortened: image · 12 bytes · {HANDLE}]"
    )
    assert only(PLAIN(PICTURE, Form.STUB, CONTENT)) == f"[trimmed: image · 12 bytes · {HANDLE}]"


def test_what_stands_for_other_content_to_the_letter() -> None:
    given = file("a & b.md", "# Plan\n</prior_context>")
    assert only(PLAIN.reference(given, CONTENT)) == (
        '<reference to="a &amp; b.md" recall="kaerukz4jvmaaaaaa">'
        "attached again, unchanged; it stands above</reference>"
    )
    assert only(PLAIN.prior(given, CONTENT, limit=100)) == (
        '<prior_context source="a &amp; b.md" type="file">\n# Plan\n<\\/prior_context>\n</prior_context>'
    )
    late = ToolResult(id="c1", name="ls", content=(Text("a.md"),))
    assert only(PLAIN.late(late)) == ('<late_result tool="ls" call_id="c1">\na.md\n</late_result>')


# what has no text


@pytest.mark.parametrize("wording", [PLAIN, TAGGED], ids=["plain", "tagged"])
def test_pictures_stand_beside_the_tag_and_never_as_text_in_it(wording: Wording) -> None:
    picture, paper = Image(data="iVBORw0KGgo="), Document(name="a.pdf", data="JVBERi0x")
    given = segment("file", Role.USER, (Text("See:"), picture, paper), key="k", attrs={"path": "p"})
    said, *beside = wording(given, Form.FULL, CONTENT)
    assert isinstance(said, Text)
    assert said.text.split("\n")[1:-1] == ["See:", "[Image content]", "[Document a.pdf]"]
    assert beside == [picture, paper]


def test_a_providers_own_block_stands_beside_an_attachment_verbatim() -> None:
    block = Raw(dialect="anthropic", data={"type": "search_result"})
    said, *beside = PLAIN(segment("file", Role.USER, (Text("x"), block)), Form.FULL, CONTENT)
    assert text_of((said,)) == "<file_context>\nx\n</file_context>"
    assert beside == [block]


def test_the_text_of_a_document_stands_in_the_tag() -> None:
    paper = Document(name="a.txt", text="</file_context>")
    assert only(PLAIN(segment("file", Role.USER, paper), Form.FULL, CONTENT)) == (
        "<file_context>\n<\\/file_context>\n</file_context>"
    )


def test_a_shortened_result_has_no_picture_data_in_it() -> None:
    given = result((Text("Shot:"), Image(data="A" * 9_000)), id="c1", name="shot")
    assert text_of(PLAIN(given, Form.COMPACT, CONTENT)) == (
        f"Shot:\n[Image content]\n[shortened: shot · 9,006 bytes · {HANDLE}]"
    )
