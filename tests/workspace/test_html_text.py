"""HTML as a reader sees it, and pages that were made to be read for hours."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.workspace.html_text import End, MarkupText, Start, read_markup, read_page
from tests.bounded import bounded_work


def test_scripts_styles_and_hidden_parts_are_not_text() -> None:
    html = """<head><title>A &amp; B</title><style>p{}</style></head><body>shown
    <script>alert("</p>no")</script><div hidden>no<p>no</p></div><span style="display: NONE">no</span>
    <ul><li>one<li>two</ul><pre>a  b
      c</pre><table><tr><td>1<td>2</table></body>"""
    assert read_page(html).title == "A & B"
    assert read_page(html).text == "shown\n\n- one\n- two\n\na b\nc\n\n| 1 | 2"


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("a < b and c", "a < b and c"),
        ("1 <2 and 3", "1 <2 and 3"),
        ("<!-- a > b --><p>x", "x"),
        ("<!-->x", "x"),
        ("<!--->x", "x"),
        ("<!-- never <p>ends", ""),
        ("<!doctype html><?xml x?><![CDATA[no]]>x", "x"),
        ("</>x</ y>z", "xz"),
        ("<p title='a > b'>x</p>", "x"),
        ('<p title="never>x</p>', "x"),
        ("<a b = 'c' d=e f>x", "x"),
        ("<a/b/>x", "x"),
        ("<=a>x", "<=a>x"),
        ("<SCRIPT>no</Script >x", "x"),
        ("<script>no</scripty></script>x", "x"),
        ("<script>no <body>no", ""),
        ("x<title>never ends", "x"),
        ("&lt;p&gt; &#65;&#x42; &copy &nope;", "<p> AB © &nope;"),
        ("<div hidden/>x", "x"),
        ("<p>x</p", "x</p"),
        ("a<b", "a<b"),
        ("&#" + "9" * 5_000 + ";x&#" + "0" * 5_000 + "65;&#x" + "f" * 5_000 + ";", "\ufffdxA\ufffd"),
    ],
)
def test_markup_is_read_about_as_browsers_do(html: str, text: str) -> None:
    assert read_page(html).text == text


def test_attributes_have_small_names_and_the_first_of_two_counts() -> None:
    (tag, words, end) = read_markup("<A HREF=\"x\" href=y Hidden='' data-q=`>t</A>")
    assert tag == Start("a", {"href": "x", "hidden": "", "data-q": "`"}, closed=False)
    assert (words, end) == (MarkupText("t"), End("a"))


PIECES = [
    *("<", "<!", "<!--", "<!-", "<?", "</", "</a", "<a", "<a ", "<a b=", '<a b="', "<a b='x", "<a/", "<a \n"),
    *("&", "&#", "&#x", "&amp", "<script>", "</scrip", "<title>", "<![CDATA[", "<!doctype", "<div hidden>"),
    *(
        "<p>",
        "</p>",
        "<a b=c d",
        "-",
        "--",
        "-->",
        "=",
        "<p/><p>",
        "&" + "a" * 31,
        "&#" + "0" * 40,
        "\n",
        " ",
    ),
]


@pytest.mark.parametrize("piece", PIECES)
def test_no_page_makes_more_work_than_its_size(piece: str) -> None:
    """The standard library's parser needs more than the bound for many of these."""
    for before in ("", "<script>", "<!--", "<p a='"):
        with bounded_work():
            read_page(before + piece * (100_000 // len(piece)))


@given(st.text(alphabet="<>/!-pdivscript \"'=&;a\n", max_size=300))
def test_any_page_has_a_text(html: str) -> None:
    assert isinstance(read_page(html).text, str)


@given(st.lists(st.sampled_from(["a", "é &", "<p>", "</p>", "<br/>", "<b x='1 > 2'>", "</b>", "<!-- > -->"])))
def test_every_word_comes_out_once_and_in_order(pieces: list[str]) -> None:
    visible_text = "".join(piece for piece in pieces if not piece.startswith("<"))
    words = "".join(token.text for token in read_markup("".join(pieces)) if isinstance(token, MarkupText))
    assert words == visible_text
