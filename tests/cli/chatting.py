"""A chat in a real terminal, and a model that says what a test wants, as fast as it wants."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, NamedTuple, Self

import pexpect  # type: ignore[import-untyped]
import pyte

from tests.servers.serving import serve_http

PATIENCE = 40.0
ROWS, COLUMNS = 80, 100
CTRL_C, CTRL_D, CTRL_U, UP, TAB, BACKSPACE = "\x03", "\x04", "\x15", "\x1b[A", "\t", "\x7f"


class Answer(NamedTuple):
    """What the model says, in words; the calls it makes; seconds between words; why it stops."""

    text: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    pace: float = 0.0
    stop: str = "stop"


Script = Callable[[dict[str, Any]], Answer | str]


class Model:
    """A server that speaks Chat Completions as a stream. `requests` are those that it was sent.

    `windows` are the context windows that it lists for its models; without any it lists no models.
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.windows: dict[str, int] = {}
        self.url = ""

    def said(self, number: int = -1) -> str:
        """Everything that stands in a request."""
        return json.dumps(self.requests[number]["messages"], ensure_ascii=False)

    def events(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        self.requests.append(body)
        given = self.script(body)
        answer = Answer(given) if isinstance(given, str) else given
        for at, word in enumerate(answer.text.split(" ") if answer.text else ()):
            yield _chunk({"content": word if at == 0 else f" {word}"})
            time.sleep(answer.pace)
        for at, (name, arguments) in enumerate(answer.calls):
            function = {"name": name, "arguments": json.dumps(arguments)}
            called = {"index": at, "id": f"c{len(self.requests)}-{at}", "type": "function"}
            yield _chunk({"tool_calls": [called | {"function": function}]})
        usage: dict[str, Any] = {"prompt_tokens": 1000, "completion_tokens": 10, "total_tokens": 1010}
        usage |= {"prompt_tokens_details": {"cached_tokens": 500}}
        yield _chunk({}, stop="tool_calls" if answer.calls else answer.stop) | {"usage": usage}


def _chunk(delta: dict[str, Any], stop: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"role": "assistant"} | delta, "finish_reason": stop}
    return {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [choice]}


@contextmanager
def model(script: Script) -> Iterator[Model]:
    """The server, for as long as the context lasts."""
    made = Model(script)

    class Asked(_Asked):
        model = made

    with serve_http(Asked) as url:
        made.url = f"{url}/v1"
        yield made


class _Asked(BaseHTTPRequestHandler):
    model: Model

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        made = self.model
        made.headers.append({name.lower(): value for name, value in self.headers.items()})
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        with suppress(OSError):  # whoever asked has gone
            for event in made.events(body):
                self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")

    def do_GET(self) -> None:
        made = self.model
        models = [{"id": name, "max_model_len": size} for name, size in made.windows.items()]
        self.send_response(200 if models else 404)
        self.end_headers()
        self.wfile.write(json.dumps({"object": "list", "data": models}).encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing."""


@contextmanager
def pages(found: dict[str, tuple[str, str]], *, redirect: str = "") -> Iterator[str]:
    """A web server with these pages, by path: type and text. Every other path is not found, or redirects."""

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, text = found.get(self.path, ("text/plain", ""))
            status = 302 if redirect else 404
            self.send_response(200 if self.path in found else status)
            self.send_header("Content-Type", kind)
            if redirect:
                self.send_header("Location", redirect)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Nothing."""

    with serve_http(Pages) as url:
        yield url


def environment(folder: Path, url: str = "") -> dict[str, str]:
    """That of a user who has set nothing but a server, with a home of their own."""
    # PYTHONPATH may name the checkout to test; tests/conftest.py says what SSL_CERT_FILE saves.
    names = ("PATH", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "SSL_CERT_FILE")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    home = {
        "HOME": str(folder),
        "XDG_DATA_HOME": str(folder / "data"),
        "XDG_CONFIG_HOME": str(folder / "conf"),
    }
    server = {"OPENAI_BASE_URL": url} if url else {}
    nothing = {"OLLAMA_HOST": "127.0.0.1:9"}
    return kept | home | server | nothing | {"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}


class Terminal:
    """`lamina chat` behind a pseudo-terminal, and the screen as a user sees it."""

    def __init__(
        self, folder: Path, *arguments: str, url: str = "", without: str = "", echo: bool = False, **more: str
    ) -> None:
        """`without` names a package that cannot be imported there; `echo`: it shows what is typed."""
        command = f"import sys; sys.modules[{without!r}] = None; from lamina.cli import main; "
        code = [f"{command}sys.exit(main(sys.argv[1:]))", "chat", *arguments]
        way = ["-c", *code] if without else ["-m", "lamina", "chat", *arguments]
        self.screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.ByteStream(self.screen)
        self.child = pexpect.spawn(
            sys.executable, way, dimensions=(ROWS, COLUMNS), echo=echo,
            env=environment(folder, url) | more, cwd=str(folder), timeout=PATIENCE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.child.close(force=True)

    @property
    def shown(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip()

    def type(self, text: str) -> None:
        self.child.send(text)

    def enter(self, line: str) -> None:
        self.type(f"{line}\r")

    def wait(self, *texts: str, times: int = 1) -> str:
        """Until the screen has these texts, the last of them so often."""
        until = time.monotonic() + PATIENCE
        while not _has(shown := self.shown, texts, times):
            assert time.monotonic() < until, f"{texts} did not appear in:\n{shown}"
            assert self._read(), f"it ended before {texts} appeared in:\n{shown}"
        return shown

    def left(self) -> int:
        """Its exit status, once it has ended."""
        until = time.monotonic() + PATIENCE
        while self._read():
            assert time.monotonic() < until, f"it did not end:\n{self.shown}"
        self.child.wait()
        ended, killed = self.child.exitstatus, self.child.signalstatus
        return int(ended) if ended is not None else -int(killed)

    def _read(self) -> bool:
        try:
            self._stream.feed(self.child.read_nonblocking(65_536, timeout=0.2))
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        return True


def _has(shown: str, texts: tuple[str, ...], times: int) -> bool:
    return all(text in shown for text in texts) and shown.count(texts[-1]) >= times
