"""The parts of a chat that need no terminal: finding a model, Markdown, attachments."""

from __future__ import annotations

import importlib.util
import io
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import anyio
import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from lamina.agent import TurnCost
from lamina.cli.chat import answers
from lamina.cli.chat.answers import FormattedAnswer, open_answer, split_blocks
from lamina.cli.chat.attaching import attach_mentions, mention_choices
from lamina.cli.chat.maps import describe_turn
from lamina.cli.chat.reached_models import DEFAULT_MODELS, ModelChoice, ModelRoute, find_route, ollama_host
from lamina.context.port import GatheredSegments
from lamina.core.text.characters import is_printable, make_printable
from lamina.errors import BadInput
from lamina.fitting import Policy
from lamina.models import model as facts_of
from lamina.sessions import Session
from lamina.settings import Settings
from lamina.workspace import Workspace
from tests.servers.serving import serve_http

NOWHERE = {"OLLAMA_HOST": "127.0.0.1:9"}
CONTROL = re.compile("\x1b\\[\\??[0-9;]*[mKAhlJ]")
"""Styles, and the moves by which a block that grows is drawn again."""


@contextmanager
def listing(**paths: Any) -> Iterator[str]:
    """A server that has these answers, by the last name of their paths."""

    class Listing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = json.dumps(paths.get(self.path.rpartition("/")[2])).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(found)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Nothing."""

    with serve_http(Listing) as url:
        yield url


@pytest.mark.parametrize(
    ("name", "variables", "way"),
    [
        ("", {"ANTHROPIC_API_KEY": "k"}, ModelRoute(model=DEFAULT_MODELS["anthropic"], dialect="anthropic")),
        ("", {"OPENAI_API_KEY": "k"}, ModelRoute(model=DEFAULT_MODELS["openai_chat"], dialect="openai_chat")),
        ("", {"GOOGLE_API_KEY": "k"}, ModelRoute(model=DEFAULT_MODELS["gemini"], dialect="gemini")),
        ("claude-opus-5", {"ANTHROPIC_API_KEY": "k"}, ModelRoute(model="claude-opus-5", dialect="anthropic")),
        (
            "anthropic/claude-opus-5",
            {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://h/v1"},
            ModelRoute(model="anthropic/claude-opus-5", dialect="openai_chat", url="http://h/v1"),
        ),
        ("ollama/llama3.2", {}, ModelRoute(model="llama3.2", dialect="ollama", url="http://127.0.0.1:9")),
    ],
)
def test_a_model_is_found_by_its_name_and_the_keys(
    name: str, variables: dict[str, str], way: ModelRoute
) -> None:
    assert find_route(ModelChoice(model=name), NOWHERE | variables) == way


@pytest.mark.parametrize(
    ("name", "variable"), [("", "OPENAI_BASE_URL"), ("claude-opus-5", "ANTHROPIC_API_KEY")]
)
def test_without_a_model_it_says_what_to_set(name: str, variable: str) -> None:
    with pytest.raises(BadInput, match=variable):
        find_route(ModelChoice(model=name), NOWHERE | ({"OPENAI_API_KEY": "k"} if name else {}))


@pytest.mark.parametrize(
    ("dialect", "variables", "route"),
    [
        ("ollama", {}, ModelRoute(model="m", dialect="ollama", url="http://box/x", remembered=True)),
        ("ollama", {"OLLAMA_HOST": "http://h:1"}, ModelRoute(model="m", dialect="ollama", url="http://h:1")),
        (
            "openai_chat",
            {},
            ModelRoute(model="m", dialect="openai_chat", url="http://box/x", remembered=True),
        ),
        (
            "openai_chat",
            {"OPENAI_BASE_URL": "http://h/v1"},
            ModelRoute(model="m", dialect="openai_chat", url="http://h/v1"),
        ),
    ],
)
def test_a_conversation_knows_the_server_of_its_model_unless_another_is_named(
    dialect: str, variables: dict[str, str], route: ModelRoute
) -> None:
    known = ModelChoice(model="m", dialect=dialect, server="http://box/x")
    assert find_route(known, variables) == route


def test_a_local_ollama_is_found_with_its_newest_model() -> None:
    with listing(tags={"models": [{"name": "qwen3:4b"}, {"name": "llama3.2:latest"}]}) as url:
        variables = {"OLLAMA_HOST": url}
        assert find_route(ModelChoice(model=""), variables) == ModelRoute(
            model="qwen3:4b", dialect="ollama", url=url
        )
        assert find_route(ModelChoice(model="llama3.2"), variables) == ModelRoute(
            model="llama3.2", dialect="ollama", url=url
        )
        with pytest.raises(BadInput, match="nothing here can reach"):
            find_route(ModelChoice(model="llama4"), variables)


def test_a_server_of_ones_own_says_which_model_it_has() -> None:
    with listing(models={"data": [{"id": "local-7b"}]}) as url:
        assert find_route(ModelChoice(model=""), {"OPENAI_BASE_URL": f"{url}/v1"}).model == "local-7b"
        with pytest.raises(BadInput, match="lists no models"):
            find_route(
                ModelChoice(model=""),
                {"OPENAI_BASE_URL": f"{url}/v2/nothing"} | {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"},
            )


@pytest.mark.parametrize(
    ("given", "host"),
    [
        ("", "http://127.0.0.1:11434"), ("0.0.0.0", "http://127.0.0.1:11434"),  # noqa: S104 - what a server listens on
        (":8000", "http://127.0.0.1:8000"),
        ("box:1234", "http://box:1234"), ("https://box.example", "https://box.example"),
        ("[::1]", "http://[::1]:11434"),
    ],
)  # fmt: skip
def test_the_host_of_ollama_is_read_as_its_own_programs_do(given: str, host: str) -> None:
    assert ollama_host({"OLLAMA_HOST": given}) == host


def test_the_usual_models_are_known() -> None:
    assert all(facts_of(name).window for name in DEFAULT_MODELS.values())


def formatted(pieces: list[str], *, width: int = 40, height: int = 60) -> tuple[str, str]:
    """What a terminal shows after an answer that came in these pieces, and the bytes that it was sent."""
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=width, height=height, color_system="standard")
    answer = FormattedAnswer(console)
    for piece in pieces:
        answer.feed(piece)
    answer.end()
    screen = pyte.Screen(width, 400)
    pyte.Stream(screen).feed(output.getvalue().replace("\n", "\r\n"))
    return "\n".join(line.rstrip() for line in screen.display).rstrip(), output.getvalue()


ANSWER = """# Plan

Use **20** requests and `x = 2**3`, see [the page](https://example.org/a).

- one two three four five six seven eight nine
- ten

  more of ten

```py
def f(x):

    return "**x**"
```

| a | b |
|---|---|
| 1 | 2 |
"""

SHOWN = """Plan

Use 20 requests and x = 2**3, see the
page (https://example.org/a).

 • one two three four five six seven
   eight nine
 • ten
   more of ten

def f(x):

    return "**x**"

 a  b
 ────
 1  2"""


def test_markdown_is_shown_formatted_and_code_can_be_copied() -> None:
    assert formatted([ANSWER])[0] == SHOWN
    assert formatted(["```py\n", "x = 1\n", "```"])[0] == "x = 1"
    assert formatted(["A fence ", "that ends nowhere:\n\n~~~\n```\nx"])[0].endswith("\n```\nx")


@pytest.mark.parametrize("size", [1, 7, 60])
def test_the_pieces_in_which_an_answer_arrives_do_not_matter(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "SECONDS_BETWEEN_DRAWINGS", 0.0)
    pieces = [ANSWER[at : at + size] for at in range(0, len(ANSWER), size)]
    assert formatted(pieces)[0] == SHOWN


def test_a_block_that_is_longer_than_the_screen_is_printed_once_and_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answers, "SECONDS_BETWEEN_DRAWINGS", 0.0)
    lines = [f"line{number}\n" for number in range(80)]
    shown, sent = formatted(["```\n", *lines, "```\n\nafter"], height=10)
    assert shown.split("\n") == [*(line.strip() for line in lines), "", "after"]
    drawn = sent.count("line")
    assert drawn < 80 * 12  # each drawing has a screen of it, and not all that came before


@given(st.text(alphabet=st.characters() | st.sampled_from("\x1b\x9b\x07\u202e*`#-> \n"), max_size=200))
def test_nothing_speaks_to_the_terminal_but_the_styles(text: str) -> None:
    _, sent = formatted([text])
    left = CONTROL.sub("", sent)
    assert all(is_printable(one) or one in "\r\n\u200c\u200d" for one in left)
    assert "\n" not in make_printable(text)
    shown = make_printable(text, lines=True)
    assert "".join(split_blocks(shown)).replace("\n", "") == shown.replace("\n", "")


@pytest.mark.parametrize("missing", ["style", "rich"])
def test_without_style_or_without_rich_the_words_are_printed_as_they_come(
    missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if missing == "rich":
        monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    answer = open_answer(width=20, styled=missing != "style")
    answer.feed("Use **20** a")
    assert capsys.readouterr().out == "Use **20** a"
    answer.feed(" minute.\x1b[2J")
    answer.end()
    assert capsys.readouterr().out == " minute.[2J\n"


async def told_after(room: int) -> str:
    """The line after the last of some answers, in a window of this size."""
    async with Session.open(
        "memory:", "s", model="gpt-5", policy=Policy(budget=room), settings=Settings()
    ) as session:
        for number in range(6):
            await session.ask(f"Question {number}? " + "The fence is green. " * 60)
            await session.record("It is. " * 60)
        await session.ask("And now?")
        envelope = session.envelope
        assert envelope is not None
        spent = TurnCost(steps=1, input=900, cached=300, output=5)
        return describe_turn(envelope, spent, session.report())


def test_the_line_after_an_answer_says_what_was_left_out_and_why() -> None:
    whole = anyio.run(told_after, 100_000)
    assert re.fullmatch(
        r"sent [\d,]+ of [\d,]+ tokens · 300 of 900 from the cache · all 13 pieces in full", whole
    )
    cut = anyio.run(told_after, 3_000)
    assert re.search(r"of \d+ pieces .*(shortened|left out).* \(cut \d+: .+; /why\)", cut)


def test_wide_letters_are_wrapped() -> None:
    sentence = "日本語の文章には空白がありません。"
    shown, _ = formatted([sentence], width=20)
    assert [line.replace(" ", "") for line in shown.split("\n")] == [sentence[:10], sentence[10:]]


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    for name in ("docs/spec.md", "docs/my plan.txt", "src/app.py", ".hidden", "node_modules/x.js", ".env"):
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"text of {name}", encoding="utf-8")
    (tmp_path / "secret.txt").write_text("outside", encoding="utf-8")
    (tmp_path / "root" / "link.txt").symlink_to(tmp_path / "secret.txt")
    return Workspace(tmp_path / "root")


def found(text: str, space: Workspace) -> GatheredSegments:
    return anyio.run(attach_mentions, text, space)


def test_files_and_folders_are_attached_by_their_names_once(space: Workspace) -> None:
    keys = [one.key for one in found('See @src/app.py, @src/app.py and @"docs/my plan.txt".', space)]
    assert keys == ["src/app.py", "docs/my plan.txt"]
    assert [one.key for one in found("All of @docs/?", space)] == ["docs/my plan.txt", "docs/spec.md"]


@pytest.mark.parametrize(
    "text", ["ask @alice", "mail a@docs/spec.md", "@../secret.txt", "@link.txt", "@.env", "@"]
)
def test_what_is_no_file_of_the_workspace_stays_words(text: str, space: Workspace) -> None:
    assert found(text, space).segments == ()


def test_a_file_that_cannot_be_sent_stops_the_message(space: Workspace, tmp_path: Path) -> None:
    (tmp_path / "root" / "blob.bin").write_bytes(b"\x00\xff\x00\xff")
    with pytest.raises(BadInput, match=r"blob\.bin"):
        found("What is @blob.bin?", space)


@pytest.mark.parametrize(
    ("before", "texts"),
    [
        ("see @", ["docs/", "src/"]), ("see @src/a", ["src/app.py"]), ("@docs/m", ['"docs/my plan.txt"']),
        ('@"docs/m', ['"docs/my plan.txt"']), ("@.h", [".hidden"]), ("@../", []), ("a@s", []), ("plain", []),
    ],
)  # fmt: skip
def test_tab_offers_what_is_there_and_may_be_had(before: str, texts: list[str], space: Workspace) -> None:
    assert [choice.text for choice in mention_choices(before, space)] == texts
