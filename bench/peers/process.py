"""A process that answers lines of JSON, and is killed when it does not: late, dead, or not JSON.

Knows nothing of what the lines say. Blocks the thread that asks: the lab asks from processes of its own.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import tempfile
import time
import weakref
from collections.abc import Sequence
from typing import IO, Any

import msgspec

from lamina.errors import LaminaError

MAX_LINE = 256 * 2**20
_CHUNK = 2**20
_TAIL = 1000


class PeerFailed(LaminaError, RuntimeError):
    """A peer did not answer a call. `peer` names it, `reason` says what happened."""

    def __init__(self, peer: str, reason: str) -> None:
        self.peer = peer
        self.reason = reason
        super().__init__(f"{peer}: {reason}")


class Worker:
    """One such process, started at once. After a failure it is dead, and stays so."""

    def __init__(self, name: str, command: Sequence[str], *, most: int = MAX_LINE) -> None:
        self.name, self.most = name, most
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._errors = errors
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            bufsize=0,
            env=_surroundings(),
            start_new_session=True,
        )
        self._in, self._out = _both(self._process)
        os.set_blocking(self._in.fileno(), False)
        self._end = weakref.finalize(self, _end, self._process, errors, os.getpid())

    @property
    def alive(self) -> bool:
        """Whether this process, and not one that it was forked from, may ask."""
        return self._end.alive and self._end.peek()[2][2] == os.getpid()  # type: ignore[index]

    def ask(self, question: dict[str, Any], *, limit: float) -> dict[str, Any]:
        """The answer to one line, within `limit` seconds; otherwise the process is killed."""
        if not self.alive:
            raise PeerFailed(self.name, "was ended before this call")
        try:
            line = self._exchange(msgspec.json.encode(question) + b"\n", time.monotonic() + limit, limit)
            return _decoded(line)
        except (_Fault, OSError, msgspec.DecodeError) as fault:
            reason = self._reason(fault)
            self.kill()
            raise PeerFailed(self.name, reason) from fault
        except BaseException:
            self.kill()  # half a line may have been sent
            raise

    def kill(self) -> None:
        self._end()

    def _exchange(self, line: bytes, deadline: float, limit: float) -> bytes:
        left, got, size = memoryview(line), list[bytes](), 0
        with selectors.DefaultSelector() as ready:
            ready.register(self._in, selectors.EVENT_WRITE)
            ready.register(self._out, selectors.EVENT_READ)
            while not got or not got[-1].endswith(b"\n"):
                wait = deadline - time.monotonic()
                events = [key.fileobj for key, _ in ready.select(wait)] if wait > 0 else []
                if not events:
                    raise _Fault(f"no answer within {limit:g} s")
                if self._in in events:
                    left = left[os.write(self._in.fileno(), left) :]
                    if not left:
                        ready.unregister(self._in)
                if self._out in events:
                    got.append(self._read())
                    size += len(got[-1])
                    if size > self.most:
                        raise _Fault(f"an answer of more than {self.most:,} bytes")
        if left:
            raise _Fault("answered before it was asked")
        return b"".join(got)

    def _read(self) -> bytes:
        chunk = os.read(self._out.fileno(), _CHUNK)
        if not chunk:
            raise _Fault("ended")
        return chunk

    def _reason(self, fault: BaseException) -> str:
        """What happened, with the end of what the process said about it."""
        if isinstance(fault, msgspec.DecodeError):
            return f"answered with something other than one JSON object in one line ({fault})"
        said = "ended" if isinstance(fault, OSError) else str(fault)
        if said != "ended":
            return said
        with contextlib.suppress(subprocess.TimeoutExpired):
            said = f"ended with {self._process.wait(timeout=1)}"
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - _TAIL))
        tail = self._errors.read().decode("utf-8", "replace").strip()
        return f"{said}: {tail}" if tail else said


class _Fault(Exception):
    pass


def _decoded(line: bytes) -> dict[str, Any]:
    return msgspec.json.decode(line, type=dict[str, Any])


def _both(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    assert process.stdin is not None  # noqa: S101 - both were asked for
    assert process.stdout is not None  # noqa: S101 - as above
    return process.stdin, process.stdout


def _end(process: subprocess.Popen[bytes], errors: IO[bytes], owner: int) -> None:
    """Kill the process and whatever it started; only for who started it."""
    if os.getpid() == owner:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for file in (*_both(process), errors):
        file.close()


def _surroundings() -> dict[str, str]:
    """A small environment, the same everywhere: nothing is fetched, nothing is reported, one thread."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG") if name in os.environ}
    return {
        **kept,
        "PYTHONHASHSEED": "0",
        "PYTHONIOENCODING": "utf-8",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "HEADROOM_TELEMETRY": "0",
        "HAYSTACK_TELEMETRY_ENABLED": "False",
        "OTEL_SDK_DISABLED": "true",
        "LANGSMITH_TRACING": "false",
        "DO_NOT_TRACK": "1",
    }
