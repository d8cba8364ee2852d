"""What all requests of one gateway process share, and how its parts are put together.

policies ──▶ fitter ──▶ sent_calls     what to send, and what follows
index ──▶ saver                        what is remembered between two requests
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lamina.gateway import limits
from lamina.gateway.client_connection import BodyRoom
from lamina.gateway.config import GatewaySettings
from lamina.gateway.conversation_index import ConversationIndex
from lamina.gateway.fit import Fitter
from lamina.gateway.fit_call import CallFitter
from lamina.gateway.journal import Journal
from lamina.gateway.metrics import GatewayMetrics
from lamina.gateway.misses import MissReporter
from lamina.gateway.policies import RequestPolicies, ServedWindows
from lamina.gateway.refusals import Refusal
from lamina.gateway.saving import ConversationSaver
from lamina.gateway.sent_calls import SentCalls
from lamina.gateway.store_access import GatewayStore
from lamina.gateway.turn_memory import TurnMemory
from lamina.gateway.upstream_connection import UpstreamConnections
from lamina.gateway.upstreams import Upstreams
from lamina.telemetry import Telemetry


class Gateway:
    """The parts of one gateway process."""

    def __init__(
        self,
        settings: GatewaySettings,
        *,
        connections: UpstreamConnections,
        store: GatewayStore,
        metrics: GatewayMetrics,
        journal: Journal,
        environment: Mapping[str, str],
        telemetry: Telemetry,
        drain: Drain,
    ) -> None:
        self.settings = settings
        self.connections = connections
        self.metrics = metrics
        self.journal = journal
        self.environment = environment
        self.telemetry = telemetry
        self.drain = drain
        self.upstreams = Upstreams(settings)
        self.misses = MissReporter(metrics, journal, telemetry)
        self.bodies = BodyRoom(limits.HELD_BODIES * settings.body_bytes, limits.BODY_SECONDS)

        keep = settings.policy.keep
        index = ConversationIndex(store, shared=settings.shares_store, keep=keep)
        self.saver = ConversationSaver(store, index, metrics)
        self.policies = RequestPolicies(ServedWindows(environment))
        call_fitter = CallFitter(
            settings=settings,
            policies=self.policies,
            store=store,
            index=index,
            saver=self.saver,
            metrics=metrics,
            journal=journal,
        )
        self.fitter = Fitter(call_fitter)
        self.sent_calls = SentCalls(call_fitter)
        self._memories: dict[str, TurnMemory] = {}
        self._active: dict[str, int] = {}
        self._tasks: set[asyncio.Future[None]] = set()

    def memory(self, workspace: str) -> TurnMemory:
        """The decoded messages of a workspace. How fast one is decoded tells nothing about another's."""
        if workspace not in self._memories:
            self._memories[workspace] = TurnMemory()
        return self._memories[workspace]

    def finish_later(self, work: Coroutine[Any, Any, None]) -> None:
        """Finish something that must not end with the client's connection."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish_all(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def enter(self, workspace: str) -> None:
        """Count a request. Raises Refusal if the workspace has too many at once."""
        active = self._active.get(workspace, 0)
        if active >= limits.REQUESTS:
            raise Refusal(429, "too many requests at once in this workspace", retry_after=1)
        self._active[workspace] = active + 1
        self.metrics.add("lamina_requests_active", 1)

    def leave(self, workspace: str) -> None:
        self._active[workspace] -= 1
        self.metrics.add("lamina_requests_active", -1)


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
        self._pages: set[asyncio.Task[Any]] = set()
        self._cut: set[asyncio.Task[Any]] = set()

    def begin_request(self) -> asyncio.Task[Any]:
        """Note that this task answers a request, until `end_request`."""
        task = _current_task()
        self._requests.add(task)
        return task

    def end_request(self, task: asyncio.Task[Any]) -> None:
        self._requests.discard(task)
        self._cut.discard(task)

    @contextmanager
    def running_page(self) -> Iterator[None]:
        """Note that this task shows a page. A live page never ends by itself, so it is not waited for."""
        task = _current_task()
        self._pages.add(task)
        try:
            yield
        except asyncio.CancelledError:
            if not self.take_cut():
                raise
        finally:
            self._pages.discard(task)

    def close_pages(self) -> None:
        self._cancel(self._pages)

    def cut_requests(self) -> None:
        """Cut off every request that still runs."""
        self.cut_count += len(self._requests - self._cut)
        self._cancel(self._requests)

    def take_cut(self) -> bool:
        """Whether this task was cancelled because the gateway stops. It then goes on, to say so."""
        task = _current_task()
        if task not in self._cut:
            return False
        self._cut.discard(task)
        task.uncancel()
        return True

    def _cancel(self, tasks: set[asyncio.Task[Any]]) -> None:
        for task in tasks - self._cut:
            self._cut.add(task)
            task.cancel()


def _current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - for the type checker
    return task
