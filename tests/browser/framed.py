"""The Chromium that the package kaleido 0.2.1 carries: it needs no library but the C one, and no root.

That program draws figures: it loads a script that is to be its library, and calls it for each line on its
standard input. Here that script is ours. It writes the page to be tested into a frame, listens to what goes
wrong there from the first byte on, and evaluates what it is given with the frame's window and document. The
program calls whichever frame is the newest, so the frame is given what it calls.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Any, Self

SCHEMES = {"dark": "0", "light": "1"}
"""What `--blink-settings` calls them in the Chromium of this package, which is 88."""

STARTS, START_SECONDS, ANSWER_SECONDS = 3, 30.0, 120.0
"""How often the program is started, and how long it may take to say that it is there, and to answer."""

_FLAGS = "--no-sandbox --disable-gpu --disable-dev-shm-usage --allow-file-access-from-files".split()
_SCRIPT = """
window.Plotly = {version: "2.0.0", toImage: async (figure) => {
  try { return JSON.stringify({value: await (0, eval)(figure.layout.expression)}); }
  catch (error) { return JSON.stringify({error: String(error)}); }
}};
window.laminaIn = (use) => {
  const frame = document.querySelector("iframe"), view = frame.contentWindow;
  return use(view, frame.contentDocument, view.getComputedStyle.bind(view));
};
window.laminaOpen = async (text) => {
  const frame = document.createElement("iframe");
  Object.assign(frame, {width: 1000, height: 800, said: [], asked: []});
  document.body.append(frame);
  const view = frame.contentWindow, page = frame.contentDocument;
  page.open();
  const answer = async (asked) => ({code: 0, result: await Plotly.toImage(asked.data)});
  view.kaleido_scopes = {plotly: answer};
  view.addEventListener("error", (event) => {
    frame.said.push(event.message || `cannot load ${event.target.src || event.target.href}`);
  }, true);
  page.addEventListener("securitypolicyviolation", (event) => {
    frame.said.push(`forbidden: ${event.violatedDirective} ${event.blockedURI}`);
    frame.asked.push(event.blockedURI);
  });
  for (const name of ["error", "warn", "assert"]) {
    view.console[name] = (...all) => frame.said.push(all.join(" "));
  }
  new view.PerformanceObserver((list) => {
    frame.asked.push(...list.getEntries().map((entry) => entry.name));
  }).observe({type: "resource", buffered: true});
  const loaded = new Promise((done) => view.addEventListener("load", done));
  page.write(text);
  page.close();
  await loaded;
  await new Promise((done) => setTimeout(done, 50));
  return true;
};
"""


class NoBrowser(RuntimeError):
    """There is no browser to run, or it does not speak."""


class Framed:
    """One process for each page: a frame that another one begins would have the other's policy, too."""

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="lamina-browser-")))
        self._script = folder / "script.js"
        self._script.write_text(_SCRIPT, encoding="utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def open(self, url: str, *, scheme: str = "light") -> FramedPage:
        return FramedPage(self._stack.enter_context(_Process(self._script, SCHEMES[scheme])), url)


class FramedPage:
    def __init__(self, process: _Process, url: str) -> None:
        self._process = process
        text = Path(url.removeprefix("file://")).read_text("utf-8")
        process.ask(f"laminaOpen({json.dumps(text)})")

    def evaluate(self, expression: str) -> Any:
        use = f"(window, document, getComputedStyle) => ({expression})"
        return self._process.ask(f"laminaIn({use})")

    @property
    def complaints(self) -> list[str]:
        return self._kept("said")

    @property
    def requests(self) -> list[str]:
        return self._kept("asked")

    def _kept(self, name: str) -> list[str]:
        found: list[str] = self._process.ask(f"document.querySelector('iframe').{name}")
        return found


class _Process:
    def __init__(self, script: Path, scheme: str) -> None:
        spec = find_spec("kaleido")
        places = [Path(place) / "executable" for place in (spec and spec.submodule_search_locations) or ()]
        self._folder = next((place for place in places if (place / "bin" / "kaleido").is_file()), None)
        if self._folder is None:
            hint = "install Chromium or the package kaleido 0.2.1, or set LAMINA_BROWSER to a browser"
            raise NoBrowser(f"there is no browser: {hint}")
        flags = [f"--plotlyjs={script}", f"--blink-settings=preferredColorScheme={scheme}", *_FLAGS]
        self._command = [str(self._folder / "bin" / "kaleido"), "plotly", *flags]

    def __enter__(self) -> Self:
        """Start the program. On a busy machine it may hang before it says anything: it is started again."""
        for _ in range(STARTS - 1):
            try:
                return self._start()
            except NoBrowser:
                self._kill()
        return self._start()

    def _start(self) -> Self:
        inside = {"LD_LIBRARY_PATH": "lib", "FONTCONFIG_PATH": "etc/fonts", "XDG_DATA_HOME": "xdg"}
        own = {name: f"{self._folder}/{place}" for name, place in inside.items()}
        self._process = subprocess.Popen(
            self._command,
            cwd=self._folder,
            env={**os.environ, **own},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
        )
        self._unread = b""
        self._answer(START_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin
        self._process.stdin.close()  # the end of its input is the end of it
        try:
            self._process.wait(START_SECONDS)
            self._close()
        except subprocess.TimeoutExpired:
            self._kill()

    def _kill(self) -> None:
        """End the program and all that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._close()

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe
            pipe.close()

    def ask(self, expression: str) -> Any:
        """The value of an expression in the outer page."""
        figure = {"data": [], "layout": {"expression": expression}}
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"format": "svg", "data": figure}).encode() + b"\n")
        self._process.stdin.flush()
        answer = json.loads(self._answer()["result"])
        if "error" in answer:
            raise AssertionError(f"{expression[-300:]}: {answer['error']}")
        return answer.get("value")

    def _answer(self, seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
        line = self._read_line(seconds)
        answer: dict[str, Any] = json.loads(line) if line else {"code": 1, "message": "it ended, or hangs"}
        if answer["code"]:
            raise NoBrowser(f"{self._command[0]}: {answer['message']}")
        return answer

    def _read_line(self, seconds: float) -> bytes:
        """The next line that the program writes; b"" if it ends, or writes none in time."""
        assert self._process.stdout
        descriptor = self._process.stdout.fileno()
        deadline = monotonic() + seconds
        while b"\n" not in self._unread:
            is_ready, _, _ = select.select([descriptor], [], [], max(deadline - monotonic(), 0))
            piece = os.read(descriptor, 1 << 16) if is_ready else b""
            if not piece:
                return b""
            self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        return line
