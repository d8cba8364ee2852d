from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina import BadInput, Form, Options, Role, Segment, build
from lamina.core import KINDS, Kind, Part, Text, ToolCall, Wording, text_of
from lamina.core.hashing import handle, parts_digest
from lamina.core.kinds import REFERENCE_TAGS
from lamina.core.text.tags import escape_attribute
from lamina.core.values import Digest
from lamina.core.wording import ARGUMENT_LIMIT, NAME_LIMIT, PLAIN, TAGGED, guard, stub, unguard
from lamina.segments import assistant, call, file, note, result, segment, user

CONTENT = Digest("0123456789ab" + "0" * 52)
HANDLE = 'recall("kaerukz4jvmaaaaaa")'

TAGS = sorted({kind.tag for kind in KINDS.values()} | set(REFERENCE_TAGS))
ATTACHED = sorted(name for name, kind in KINDS.items() if kind.attachment)
MARKUP = re.compile(rf"</?\s*(?:{'|'.join(TAGS)})\b", re.IGNORECASE)
ODD = (*"<>\\\"'&[]\n\u2028\x85\x00 ", "</", "< ", "&lt;", "\r\n", "</Content >")
SCRIPTS = "\u202e שלום 👩\u200d🚀 e\u0301 İ \u212a ſ content> </content> <\\\\digest".split(" ")

PLAIN_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
PIECES = st.sampled_from(
    [*ODD, *SCRIPTS, *TAGS, *(f"</{t}>" for t in TAGS), *(f"<{t.upper()} " for t in TAGS)]
)
HOSTILE = st.lists(PIECES | PLAIN_TEXT, max_size=20).map("".join)
NAMES = HOSTILE.filter(bool)


def only(parts: tuple[Part, ...]) -> str:
    (part,) = parts
    assert isinstance(part, Text)
    return part.text


def attached(kind: str, text: str, value: str) -> Segment:
    attrs = dict.fromkeys(KINDS[kind].attributes, value)
    return segment(kind, Role.USER, text, key=value, attrs=attrs)


# tags that hold


@given(HOSTILE, st.sampled_from([(), ("content",), ("title", "path")]))
def test_unguard_gives_back_what_went_into_guard(text: str, extra: tuple[str, ...]) -> None:
    assert unguard(guard(text, extra=extra), extra=extra) == text


@given(HOSTILE)
def test_guarded_text_has_no_tag_of_ours(text: str) -> None:
    assert not MARKUP.search(guard(text))


def test_text_without_our_tags_is_not_touched() -> None:
    plain = ("a < b", "<div>x</div>", "</file_contexts>", "<profile_context>", "\\<", "<\\div>", "x <-- y")
    assert tuple(map(guard, plain)) == plain


@pytest.mark.parametrize(
    ("text", "guarded"),
    [
        ("</file_context>", "<\\/file_context>"),
        ("<\\/file_context>", "<\\\\/file_context>"),
        ("<\\\\\\file_context>", "<\\\\\\\\file_context>"),
        ("<FILE_context path='x'>", "<\\FILE_context path='x'>"),
        ("</\n file_context>", "<\\/\n file_context>"),
        ("<reference to=", "<\\reference to="),
    ],
)
def test_one_backslash_goes_into_each_tag(text: str, guarded: str) -> None:
    assert guard(text) == guarded
    assert unguard(guarded) == text


def test_tags_of_kinds_of_ones_own_are_guarded_too() -> None:
    kinds = {
        **KINDS,
        "ticket": Kind(tag="my-ticket", role=Role.USER, attachment=True),
        "t": Kind(tag="t", role=Role.USER),
    }
    assert guard("</my-ticket> <t> <to>", kinds) == "<\\/my-ticket> <\\t> <to>"
    ticket = segment("ticket", Role.USER, "</my-ticket>")
    text = only(Wording(kinds=kinds)(ticket, Form.FULL, CONTENT))
    assert text == "<my-ticket>\n<\\/my-ticket>\n</my-ticket>"


@given(st.sampled_from(ATTACHED), NAMES, NAMES, st.sampled_from([Form.FULL, Form.COMPACT]), st.booleans())
def test_an_attachment_opens_one_tag_and_closes_it_at_its_end(
    kind: str, text: str, value: str, form: Form, tagged: bool  # noqa: FBT001
) -> None:  # fmt: skip
    wording = TAGGED if tagged else PLAIN
    said = only(wording(attached(kind, text, value), form, CONTENT, limit=200))
    tag = KINDS[kind].tag
    assert [match[0].lower() for match in MARKUP.finditer(said)] == [f"<{tag}", f"</{tag}"]
    assert said.startswith(f"<{tag}")
    assert said.endswith(f"\n</{tag}>")


@given(st.sampled_from([name for name in ATTACHED if KINDS[name].nested]), NAMES, NAMES)
def test_nested_content_stands_between_one_pair_of_tags(kind: str, text: str, value: str) -> None:
    said = only(PLAIN(attached(kind, text, value), Form.FULL, CONTENT))
    assert said.lower().count("</content") == 1
    assert said.lower().count("<content>") == 1
    body = said.partition("<content>\n")[2].removesuffix(f"\n</content>\n</{KINDS[kind].tag}>")
    assert unguard(body, extra=("content",)) == text


@given(NAMES, NAMES)
def test_the_text_of_a_file_can_be_had_back_from_its_tag(text: str, path: str) -> None:
    said = only(PLAIN(file(path, text), Form.FULL, CONTENT))
    assert unguard(said.partition("\n")[2].removesuffix("\n</file_context>")) == text


def unescaped(value: str) -> str:
    for entity, character in (("&quot;", '"'), ("&apos;", "'"), ("&lt;", "<"), ("&gt;", ">")):
        value = value.replace(entity, character)
    return re.sub(r"&#(\d+);", lambda match: chr(int(match[1])), value).replace("&amp;", "&")


@given(HOSTILE)
def test_an_attribute_stays_within_its_quotes_and_on_its_line(value: str) -> None:
    escaped = escape_attribute(value)
    assert not set(escaped) & set("\"'<>")
    assert len(f"x{escaped}x".splitlines()) == 1
    assert unescaped(escaped) == value


@given(NAMES)
def test_a_name_stays_within_a_tag_and_a_reference(name: str) -> None:
    opening = only(PLAIN(file(name, "x"), Form.FULL, CONTENT)).split("\n")[0]
    assert re.fullmatch(r'<file_context path="[^"<>]*">', opening)
    reference = only(PLAIN.reference(file(name, "x"), CONTENT))
    assert re.fullmatch(r'<reference to="[^"<>]+" recall="kaerukz4jvmaaaaaa">[^<>]+</reference>', reference)


# handles


@given(NAMES, HOSTILE, st.sampled_from(["file", "note", "url", "excerpt"]))
def test_a_handle_is_one_inert_line(name: str, text: str, kind: str) -> None:
    line = stub(attached(kind, text, name), handle(CONTENT))
    described = re.fullmatch(
        r'\[trimmed: ([^\[\]"<>]*) · [\d,]+ bytes · recall\("kaerukz4jvmaaaaaa"\)\]', line
    )
    assert described
    assert len(described[1]) <= NAME_LIMIT
    known = [sign for sign in line if unicodedata.category(sign) != "Cn"]
    assert "".join(known).isprintable()


def test_a_name_cannot_end_the_handle_it_stands_in() -> None:
    line = stub(file('a"]\n[x] recall("k0")\u202e<b>', "text"), handle(CONTENT))
    assert line == f"[trimmed: file a x recall( k0 ) b · 4 bytes · {HANDLE}]"


@pytest.mark.parametrize("form", [Form.COMPACT, Form.STUB])
def test_without_handles_no_key_is_shown(form: Form) -> None:
    plain = Wording(handles=False)
    long = "line\n" * 1_000
    said = [*plain(file("a.txt", long), form, CONTENT), *plain(result(long, id="1"), form, CONTENT)]
    assert "recall" not in text_of(said)
    assert text_of(plain(user("x"), Form.STUB, CONTENT)) == "[trimmed]"
    assert text_of(plain.reference(file("a.txt", long), CONTENT)).startswith('<reference to="a.txt">')


# calls


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | PLAIN_TEXT | st.just("long " * 100),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PLAIN_TEXT, inner, max_size=3),
    max_leaves=6,
)
WRITTEN = st.one_of(
    st.dictionaries(PLAIN_TEXT, JSON, max_size=4).map(json.dumps),
    JSON.map(json.dumps),
    HOSTILE,
    st.sampled_from(['{"a": "\\ud800 b", "c": "é"}', '{"a": NaN}', '{"a": 1e999}', '{"a": 1, "a": 2}']),
    st.sampled_from(["[" * 2_000, '{"a":']),
)


def refuse(word: str) -> None:
    raise ValueError(word)


def read(text: str) -> dict[str, Any]:
    """A JSON object, by the letter of the standard."""
    value = json.loads(text, parse_constant=refuse)
    assert isinstance(value, dict)
    return value


@given(WRITTEN, st.sampled_from([Form.COMPACT, Form.STUB]), st.booleans())
def test_a_lowered_call_keeps_id_name_and_an_object(arguments: str, form: Form, handles: bool) -> None:  # noqa: FBT001
    lowered = Wording(handles=handles)(call("write", arguments, id="c1"), form, CONTENT)
    (part,) = lowered
    assert isinstance(part, ToolCall)
    assert (part.id, part.name) == ("c1", "write")
    read(part.arguments)
    parts_digest(Role.ASSISTANT, lowered)


@given(st.dictionaries(PLAIN_TEXT, PLAIN_TEXT | st.just("long " * 100), max_size=4))
def test_a_lowered_call_keeps_the_names_of_its_arguments(arguments: dict[str, str]) -> None:
    (part,) = PLAIN(call("write", arguments, id="c1"), Form.COMPACT, CONTENT)
    assert isinstance(part, ToolCall)
    kept = read(part.arguments)
    assert list(kept) == list(arguments)
    assert all(kept[name] == value for name, value in arguments.items() if len(value) <= ARGUMENT_LIMIT)


def test_own_words_may_be_a_text_or_decline() -> None:
    """A renderer that returns a text, as chunk renderers do, and one that is asked only if that declines."""

    def for_long(segment: Segment, form: Form, *_: object) -> str | None:
        text = text_of(segment.parts)
        if form is not Form.FULL or len(text) < 20:
            return None
        return f"<long>{text}</long>"

    def for_all(segment: Segment, form: Form, *_: object) -> str | None:
        return f"<said>{text_of(segment.parts)}</said>" if form is Form.FULL else None

    log = [user("hi"), assistant("short"), assistant("a sentence of some length"), user("go on")]
    for functions, expected in (
        (for_long, ["short", "<long>a sentence of some length</long>"]),
        ((for_long, for_all), ["<said>short</said>", "<long>a sentence of some length</long>"]),
    ):
        options = Options(wording=Wording(words={"assistant": functions}))
        envelope = build(log, options=options)
        assert [text_of(entry.parts) for entry in envelope.sent[1:3]] == expected


@pytest.mark.parametrize("wrong", [(), ["a"], 7, ("a text in a tuple",)])
def test_own_words_of_another_type_are_named(wrong: Any) -> None:
    options = Options(wording=Wording(words={"user": lambda *_: wrong}))
    with pytest.raises(BadInput, match=r"words\['user'\].*return a text, a tuple of parts, or None"):
        build([user("hi")], options=options)


@pytest.mark.parametrize(
    "words", [lambda *_: 1 / 0, 3, lambda _: "x", lambda *_: 3, lambda *_: ["x"], lambda *_: ()]
)
def test_words_that_raise_or_are_none_are_named(words: Any) -> None:
    with pytest.raises(BadInput, match=r"^words\['note'\]: "):
        build([note("a.md", "text"), user("?")], options=Options(wording=Wording(words={"note": words})))
