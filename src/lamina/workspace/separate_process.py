"""Reads hostile bytes in a process of its own, which is ended when it has used its time or its memory.

Some formats can only be read by a package that takes as long as a file wants it to. A thread cannot be
stopped, so such a package runs in a child process. The child limits its processor time and memory before it
reads anything, and the caller ends it when the time on the clock is over. This limits work. It is not a
sandbox: the child may read files, as this process may.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from lamina.core.text.characters import WHITE_SPACE

MEMORY = 1 << 30
"""Bytes of memory that a child may use, its own code included."""

_PRELUDE = """
import json, sys
path, seconds, memory, arguments = json.loads(sys.argv[1])
sys.path[:] = path
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
except (ImportError, ValueError, OSError):
    pass  # this system has no such limit; the caller still ends the process
"""

_INHERITED = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")
"""Variables that a Python may need to start. No others are passed on."""


class ChildFailed(Exception):
    """The child was ended, or stopped by itself. `why` is for a message; `late`: its time was over."""

    def __init__(self, why: str, *, late: bool = False) -> None:
        self.why = why
        self.late = late
        super().__init__(why)


def run_script(script: str, data: bytes, *, seconds: float, arguments: tuple[object, ...] = ()) -> bytes:
    """Run a Python script with `data` on its standard input, and return what it prints.

    The script finds its arguments, which must be JSON, in the list `arguments`.
    """
    if not sys.executable:
        raise ChildFailed("this Python does not know how to start another one")
    cpu_seconds = max(int(seconds) + 1, 1)
    settings = json.dumps([sys.path, cpu_seconds, MEMORY, arguments])
    command = [sys.executable, "-I", "-S", "-c", _PRELUDE + script, settings]
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    try:
        child = subprocess.run(  # noqa: S603 - this interpreter, with a script of our own
            command, input=data, capture_output=True, timeout=seconds, check=False, env=inherited
        )
    except subprocess.TimeoutExpired:
        raise ChildFailed(f"it took more than {seconds:g} seconds", late=True) from None
    except OSError as error:
        raise ChildFailed(f"no process could be started: {error.strerror}") from None
    if child.returncode == 0:
        return child.stdout
    if child.returncode < 0:  # ended by a signal, as the kernel does at a limit
        raise ChildFailed(
            f"it was ended after {cpu_seconds} seconds or {MEMORY:,} bytes of memory", late=True
        )
    raise ChildFailed(_last_line(child.stderr))


def _last_line(stderr: bytes) -> str:
    """The last line of a traceback, which is the error itself."""
    lines = stderr.decode("utf-8", "replace").strip(WHITE_SPACE).split("\n")
    return lines[-1][:200] or "it stopped without a word"
