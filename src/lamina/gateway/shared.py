"""What all requests of one gateway process share, and which of them run."""

from __future__ import annotations

import asyncio
from typing import Any

from lamina.gateway.client_bodies import BodyRoom
from lamina.gateway.upstream_connection import UpstreamConnections
from lamina.relay import limits
from lamina.relay.refusals import Refusal
from lamina.relay.relay import Relay


class Gateway:
    """The relay of one gateway process, and the requests that clients may have open."""

    def __init__(self, relay: Relay, connections: UpstreamConnections, drain: Drain) -> None:
        self.relay = relay
        self.connections = connections
        self.drain = drain
        self.bodies = BodyRoom(limits.HELD_BODIES * relay.settings.body_bytes, limits.BODY_SECONDS)
        self._active: dict[str, int] = {}

    def enter(self, workspace: str) -> None:
        """Count a request. Raises Refusal if the workspace has too many at once."""
        active = self._active.get(workspace, 0)
        if active >= limits.REQUESTS:
            raise Refusal(429, "too many requests at once in this workspace", retry_after=1)
        self._active[workspace] = active + 1
        self.relay.metrics.add("lamina_requests_active", 1)

    def leave(self, workspace: str) -> None:
        self._active[workspace] -= 1
        self.relay.metrics.add("lamina_requests_active", -1)


class Drain:
    """The requests that run now. `is_stopping`: the gateway is not ready for new ones.

        signal ──▶ not ready, still open ──▶ closed, requests finish ──▶ the rest is cut off ──▶ end
                   `limits.NOTICE_SECONDS`   `drain_seconds`

    A request that is cut off ends with an error in the shape of its API, so that the client knows that its
    answer is not complete and tries again, at another gateway.
    """

    def __init__(self) -> None:
        self.is_stopping = False
        self.cut_count = 0
        self._requests: set[asyncio.Task[Any]] = set()
        self._cut: set[asyncio.Task[Any]] = set()

    def begin_request(self) -> asyncio.Task[Any]:
        """Note that this task answers a request, until `end_request`."""
        task = _current_task()
        self._requests.add(task)
        return task

    def end_request(self, task: asyncio.Task[Any]) -> None:
        self._requests.discard(task)
        self._cut.discard(task)

    def cut_requests(self) -> None:
        """Cut off every request that still runs."""
        self.cut_count += len(self._requests - self._cut)
        for task in self._requests - self._cut:
            self._cut.add(task)
            task.cancel()

    def take_cut(self) -> bool:
        """Whether this task was cancelled because the gateway stops. It then goes on, to say so."""
        task = _current_task()
        if task not in self._cut:
            return False
        self._cut.discard(task)
        task.uncancel()
        return True


def _current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - for the type checker
    return task
