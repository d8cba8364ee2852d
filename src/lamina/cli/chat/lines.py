"""Reads the user's lines: with an editor that has history and completion, or as plain lines of any input.

`read` gives a line, "" if Ctrl-C took it back, None at the end. `ask` is for one short answer, and raises
KeyboardInterrupt on Ctrl-C. Neither knows what a line means.

Ctrl-C ends what is under way, and never the program.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import importlib.util
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import anyio

from lamina.cli.chat.attaching import Choice

CHUNK = 65_536

Choices = Callable[[str], Iterable[Choice]]
"""What Tab offers after the characters before the cursor."""


class LineSource(Protocol):
    """A source of lines. `asks`: somebody is there who can answer a question.

    `edits`: a line can begin with a `draft` that the user changes. Where it cannot, the draft is not used.
    """

    @property
    def asks(self) -> bool: ...
    @property
    def edits(self) -> bool: ...
    async def read(self, prompt: str, *, draft: str = "") -> str | None: ...
    async def ask(self, question: str) -> str | None: ...


def lines_for(history: Path | None, choices: Choices) -> LineSource:
    """An editor on a terminal, where prompt_toolkit is installed; else plain lines.

    Input from a pipe or a file asks nobody, so no prompt is printed for it.
    """
    if not (_is_terminal(sys.stdin) and _is_terminal(sys.stdout)):
        return Plain(sys.stdin, asks=False)
    try:
        return Editor(history, choices)
    except ImportError:
        print("(for history, completion and formatted answers install lamina-context[chat])")
        return Plain(sys.stdin, asks=True)


@contextlib.contextmanager
def echo_typing(*, on: bool) -> Iterator[None]:
    """Whether the terminal shows what is typed while no editor reads it; as it was before, at the end.

    Off, it does not break the lines of an answer. What was typed waits for the next prompt.
    """
    if importlib.util.find_spec("termios") is None or not _is_terminal(sys.stdin):
        yield
        return
    import termios  # noqa: PLC0415 - not on every system

    descriptor = sys.stdin.fileno()
    modes = termios.tcgetattr(descriptor)
    changed_modes = list(modes)
    changed_modes[3] &= ~termios.ECHO
    if on:
        changed_modes[3] |= termios.ECHO
    termios.tcsetattr(descriptor, termios.TCSANOW, changed_modes)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, modes)


def _is_terminal(stream: Any) -> bool:
    return stream is not None and stream.isatty()


class Plain:
    """Lines as they come. Read without a thread, so that nothing hangs on them when the chat ends."""

    edits = False

    def __init__(self, stream: Any, *, asks: bool) -> None:
        self.asks = asks
        self._stream = stream
        self._left = ""
        self._ended = False
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    async def read(self, prompt: str, *, draft: str = "") -> str | None:  # noqa: ARG002 - as in LineSource
        return await self._read_line(prompt)

    async def ask(self, question: str) -> str | None:
        self._left = ""  # what was typed ahead is no answer
        with echo_typing(on=True):
            return await self._read_line(question)

    async def _read_line(self, prompt: str) -> str | None:
        """The next line of a stream, None at its end.

        Lines that were pasted together are read at once. Each waits for its turn.
        """
        if self.asks:
            print(prompt, end="", flush=True)
        while "\n" not in self._left and not self._ended:
            self._left += await self._read_more()
        if not self._left and self._ended:
            return None
        line, _, self._left = self._left.partition("\n")
        return line.removesuffix("\r")

    async def _read_more(self) -> str:
        """The next characters of the stream, "" at its end.

        Waiting for them does not block the answers that come meanwhile.
        """
        try:
            source = self._stream.fileno()
        except (AttributeError, OSError, ValueError):  # no file behind it: all of it is there
            self._ended = True
            if self._stream is None:
                return ""
            return str(self._stream.read())
        with contextlib.suppress(OSError):  # a file on disk cannot be waited for, and need not be
            await anyio.wait_readable(source)
        data = os.read(source, CHUNK)
        self._ended = not data
        return self._decoder.decode(data, final=self._ended)


class Editor:
    """Lines that are edited: history over runs, Tab for paths and commands, Alt-Enter for a new line."""

    asks = True
    edits = True

    def __init__(self, history: Path | None, choices: Choices) -> None:
        from prompt_toolkit import PromptSession  # noqa: PLC0415 - an extra
        from prompt_toolkit.history import FileHistory, History, InMemoryHistory  # noqa: PLC0415

        past_lines: History = InMemoryHistory()
        if history is not None:
            _make_private(history)
            past_lines = FileHistory(str(history))
        self._session: PromptSession[str] = PromptSession(
            history=past_lines,
            completer=_completer(choices),
            complete_while_typing=False,
            complete_in_thread=True,
            key_bindings=_keys(),
        )
        self._question_session: PromptSession[str] = PromptSession()

    async def read(self, prompt: str, *, draft: str = "") -> str | None:
        """A line of the user's. Ctrl-C empties it, and Ctrl-D ends the chat."""
        try:
            return await self._session.prompt_async(prompt, default=draft, handle_sigint=False)
        except KeyboardInterrupt:
            return ""
        except EOFError:
            return None

    async def ask(self, question: str) -> str | None:
        try:
            return await self._question_session.prompt_async(question, handle_sigint=False)
        except EOFError:
            return None


def _completer(choices: Choices) -> Any:
    from prompt_toolkit.completion import Completer, Completion  # noqa: PLC0415 - an extra

    class _Completer(Completer):
        def get_completions(self, document: Any, _: Any) -> Iterable[Completion]:
            for choice in choices(document.text_before_cursor):
                yield Completion(choice.text, start_position=-choice.typed, display=choice.short_name)

    return _Completer()


def _keys() -> Any:
    from prompt_toolkit.key_binding import KeyBindings  # noqa: PLC0415 - an extra

    keys = KeyBindings()

    @keys.add("escape", "enter")
    def _(event: Any) -> None:
        event.current_buffer.insert_text("\n")

    return keys


def _make_private(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))


class Interrupts:
    """State: what is under way. If nothing is, Ctrl-C calls `idle`, which draws the prompt again."""

    def __init__(self, idle: Callable[[], None]) -> None:
        self._scope: anyio.CancelScope | None = None
        self._idle = idle

    @contextlib.contextmanager
    def listen(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        try:
            loop.add_signal_handler(signal.SIGINT, self.stop)
        except NotImplementedError:  # some systems: there Ctrl-C ends the chat, and what was said is kept
            yield
            return
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    def stop(self) -> None:
        if self._scope is None:
            self._idle()
        else:
            self._scope.cancel()

    async def run(self, action: Awaitable[None]) -> bool:
        """Run what Ctrl-C interrupts; whether it came to its end."""
        with anyio.CancelScope() as scope:
            self._scope = scope
            try:
                await action
            finally:
                self._scope = None
        return not scope.cancelled_caught
