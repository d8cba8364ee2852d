"""The calls of a process, as strace shows them: works for whatever writes files, in any language.

    calls = recorded(work, folder)      None where there is no strace, or it may not look

A write counts when it has returned, a sync from when it was called. What goes through mapped memory is not
seen; of SQLite that is only the index of its log, which it makes anew.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from tests.torture.children import Child, Work, forked
from tests.torture.medium import Call, Create, Remove, Rename, Said, Sync, Truncate, Write

PATIENCE = 10.0
CALLS = (
    "open,openat,creat,write,pwrite64,ftruncate,truncate,fsync,fdatasync,rename,renameat,renameat2,"
    "unlink,unlinkat,mkdir,mkdirat,rmdir,lseek,sendto,writev,pwritev,pwritev2,fallocate,link,linkat"
)
UNKNOWN = frozenset("writev pwritev pwritev2 fallocate link linkat".split())
"""Calls that would have to be learned; one below the folder is an error, and nothing is passed over."""


class Unseen(RuntimeError):
    """strace is there and may not look, or saw a call that is not known here."""


def usable() -> bool:
    """Whether there is a strace that may look at a child of this process."""
    if shutil.which("strace") is None:
        return False
    try:
        return bool(recorded(lambda say: say("0"), tempfile.gettempdir())[0])
    except Unseen:
        return False


def recorded(work: Work, folder: str) -> tuple[Sequence[Call], Sequence[str]]:
    """What the work did below a folder, and what it said."""
    child = forked(work, waits=True)
    with tempfile.TemporaryDirectory(prefix="strace-") as beside:
        log = Path(beside) / "log"
        command = [
            "strace",
            "-f",
            "-qq",
            "-y",
            "-xx",
            "-s",
            "100000000",
            "-e",
            f"trace={CALLS}",
            "-e",
            "signal=none",
            "-o",
            str(log),
            "-p",
            str(child.pid),
        ]
        tracer = subprocess.Popen(command, stderr=subprocess.PIPE, env={"PATH": os.defpath, "LC_ALL": "C"})
        try:
            _await(child, tracer)
        except Unseen:
            child.kill()
            raise
        finally:
            with suppress(OSError):  # it may be gone
                child.go()
            said = child.said()
            _, words = tracer.communicate()
        if tracer.returncode and not log.exists():
            raise Unseen(words.decode(errors="replace"))
        return list(_Reader(folder).calls(log.read_text().splitlines())), said


def _await(child: Child, tracer: subprocess.Popen[bytes]) -> None:
    """Until the child has a tracer."""
    until = time.monotonic() + PATIENCE
    while tracer.poll() is None and time.monotonic() < until:
        status = Path(f"/proc/{child.pid}/status").read_text()
        if "TracerPid:\t0\n" not in status:
            time.sleep(0.02)  # attached to the process; its one thread follows at once
            return
        time.sleep(0.005)
    raise Unseen("strace cannot attach to a child of this process")


_LINE = re.compile(r"(\d+) +(?:<\.\.\. )?(\w+)(?: resumed>)?(.*)")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_OPEN = re.compile(r"(\w+)<((?:\\x[0-9a-f]{2})*)>")


class _Reader:
    """Turns lines into calls. It knows how far each open file was read and written."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._at: dict[str, int] = {}
        self._begun: dict[str, str] = {}

    def calls(self, lines: Sequence[str]) -> Iterator[Call]:
        for line in lines:
            found = _LINE.match(line)
            if found is None:
                continue
            process, name, rest = found.groups()
            if rest.endswith("<unfinished ...>"):
                rest = rest.removesuffix("<unfinished ...>")
                self._begun[process] = rest
                if name in ("fsync", "fdatasync"):
                    yield from self._call(name, f"{rest}) = 0")
                continue
            if "resumed>" in line:
                if name in ("fsync", "fdatasync"):
                    continue
                rest = self._begun.pop(process, "") + rest
            if " = -1 " not in rest:
                yield from self._call(name, rest)

    def _call(self, name: str, rest: str) -> Iterator[Call]:
        texts = [_plain(text) for text in _TEXT.findall(rest)]
        opened = [
            (number, _plain(text).decode(errors="surrogateescape")) for number, text in _OPEN.findall(rest)
        ]
        if name == "sendto" and texts and texts[0].strip().isdigit():
            yield Said(int(texts[0]))
        elif name in ("write", "pwrite64", "ftruncate", "fsync", "fdatasync", "lseek"):
            yield from self._on_open(name, rest, opened[0] if opened else ("", ""), texts)
        elif name != "sendto":
            paths = [_joined(text, opened, at) for at, text in enumerate(texts)]
            if name in UNKNOWN and any(
                path.startswith(self._folder) for path in (*paths, *(p for _, p in opened))
            ):
                raise Unseen(f"{name} is not known here")
            yield from self._on_names(name, rest, paths, opened)

    def _on_open(self, name: str, rest: str, file: tuple[str, str], texts: Sequence[bytes]) -> Iterator[Call]:
        number, path = file
        if name in ("fsync", "fdatasync"):
            yield Sync(path)
        elif name == "lseek":
            self._at[number] = int(rest.rsplit("=", 1)[1])
        elif name == "ftruncate":
            yield Truncate(path, _last(rest))
        elif texts:
            done = int(rest.rsplit("=", 1)[1])
            at = _last(rest) if name == "pwrite64" else self._at.get(number, 0)
            if name == "write":
                self._at[number] = at + done
            yield Write(path, at, texts[0][:done])

    def _on_names(
        self, name: str, rest: str, paths: Sequence[str], opened: Sequence[tuple[str, str]]
    ) -> Iterator[Call]:
        if name in ("open", "openat", "creat"):
            number, path = opened[-1]
            self._at[number] = 0
            if "O_CREAT" in rest or name == "creat":
                yield Create(path)
            if "O_TRUNC" in rest or name == "creat":
                yield Truncate(path, 0)
        elif name.startswith("rename"):
            yield Rename(paths[0], paths[1])
        elif name in ("unlink", "unlinkat", "rmdir"):
            yield Remove(paths[0])
        elif name in ("mkdir", "mkdirat"):
            yield Create(paths[0], folder=True)
        elif name == "truncate":
            yield Truncate(paths[0], _last(rest))


def _last(rest: str) -> int:
    """The last argument of a call."""
    return int(rest.rpartition(")")[0].rpartition(",")[2])


def _plain(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def _joined(text: bytes, opened: Sequence[tuple[str, str]], at: int) -> str:
    """A path of a call, which may begin in an open folder."""
    path = text.decode(errors="surrogateescape")
    return path if path.startswith("/") or at >= len(opened) else f"{opened[at][1]}/{path}"
