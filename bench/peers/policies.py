"""The peers as policies of the lab: each in its own process and environment, with its own time.

`bench.lab.policies.policy` takes any policy by the name `package.module:attribute`. Every peer is an
attribute of this module, with underscores for hyphens: `bench.peers.policies:langchain_trim`. In tables a
peer has a short name, `peer:langchain-trim`.

A peer is started for each conversation and asked for each call. Its process lives as long as its policy, so a
library is loaded once. A conversation whose peer failed stays failed; the next one gets a new process.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from bench.lab.port import PolicyRequest, PolicyRun, ReplayPolicy, Setting
from bench.peers.catalogue import HOME, PEERS, Peer, interpreter
from bench.peers.process import PeerFailed, Worker
from lamina.errors import BadInput

LIMIT = 5.0
"""Seconds for a call."""

START_LIMIT = 60.0
"""Seconds for loading a library."""

_WORKERS = Path(__file__).resolve().parent / "workers"

Ask = Callable[[dict[str, Any]], dict[str, Any]]
"""Takes a request with its whole history, as OpenAI chat; returns what is sent, `messages`, and `seconds`."""


class Sizes(Protocol):
    """What a peer is told of the budget, in tokens."""

    @property
    def window(self) -> int: ...
    @property
    def room(self) -> int: ...
    @property
    def trigger(self) -> int: ...
    @property
    def target(self) -> int: ...


def policy_name(peer_name: str) -> str:
    """The name under which `bench.lab.policies.policy` finds a peer, in any process."""
    return f"{__name__}:{peer_name.replace('-', '_')}"


def peer(name: str) -> ReplayPolicy:
    """The peer of this name. Its process starts with the first conversation, and ends with this one."""
    process = peer_policy(name)
    atexit.register(process.close)

    def start(setting: Setting) -> PolicyRun:
        ask = process.start(setting)

        def run(request: dict[str, Any], _idle: float) -> PolicyRequest:
            answer = ask(request)
            return PolicyRequest(messages=answer["messages"], seconds=float(answer.get("seconds") or 0.0))

        return run

    catalogued = PEERS[name]
    return ReplayPolicy(name=f"peer:{name}", title=catalogued.title, start=start, recalls=catalogued.recalls)


def __getattr__(attribute: str) -> ReplayPolicy:
    """The peer that an attribute names; it is made when it is asked for."""
    for name in PEERS:
        if name.replace("-", "_") == attribute:
            return peer(name)
    raise AttributeError(attribute)


def peer_policy(name: str, *, home: Path = HOME, limit: float = LIMIT) -> PeerPolicy:
    """The peer of this name, with the environment that `make peers` made in `home`."""
    if name not in PEERS:
        raise BadInput(f"there is no peer {name!r}", hint=f"there are: {', '.join(PEERS)}")
    peer = PEERS[name]
    worker = _WORKERS / f"{peer.environment.replace('-', '_')}.py"
    return PeerPolicy(peer, command(interpreter(peer, home), worker, name), limit=limit)


def command(python: Path | str, worker: Path, name: str) -> tuple[str, ...]:
    """How a worker is run: with no folder of ours on its path, where our file names would hide libraries."""
    return (str(python), "-P", "-s", str(_WORKERS / "serve.py"), str(worker), name)


class PeerPolicy:
    """One conversation at a time: a start ends the one before."""

    def __init__(self, peer: Peer, command: tuple[str, ...], *, limit: float = LIMIT) -> None:
        self.peer, self.command, self.limit = peer, command, limit
        self._worker: Worker | None = None
        self._session: Session | None = None

    def start(self, setting: Sizes) -> Ask:
        """Raise PeerFailed where the library cannot be loaded or refuses these sizes."""
        if self._session is not None:
            self._session.failed = "a later conversation was started"
        if self._worker is None or not self._worker.alive:
            self._worker = Worker(self.peer.name, self.command)
        sizes = {name: getattr(setting, name) for name in ("window", "room", "trigger", "target")}
        answer = self._worker.ask({"new": True, **sizes}, limit=START_LIMIT)
        if "error" in answer:
            raise PeerFailed(self.peer.name, str(answer["error"]))
        self._session = Session(self._worker, self.limit)
        return self._session

    def close(self) -> None:
        if self._worker is not None:
            self._worker.kill()


class Session:
    """One conversation: sends what is new since the last call; after a failure every call fails."""

    def __init__(self, worker: Worker, limit: float) -> None:
        self.worker, self.limit, self.failed = worker, limit, ""
        self._told: list[dict[str, Any]] = []

    def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        if self.failed:
            raise PeerFailed(self.worker.name, self.failed)
        messages = request["messages"]
        kept = len(self._told) if messages[: len(self._told)] == self._told else 0
        question = {"keep": kept, "messages": messages[kept:], "tools": request.get("tools") or []}
        try:
            answer = self.worker.ask(question, limit=self.limit)
        except PeerFailed as error:
            self.failed = error.reason
            raise
        self._told = list(messages)
        if not isinstance(answer.get("messages"), list):
            self.failed = str(answer.get("error", "answered without messages"))
            raise PeerFailed(self.worker.name, self.failed)
        return answer
