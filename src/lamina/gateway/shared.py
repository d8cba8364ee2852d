"""What all requests of one gateway process share, and how its parts are put together.

policies ──▶ call_fitter ──▶ fitter, mender, recall_turns     what to send
index ──▶ saver ──▶ learner                                   what is remembered between two requests
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

import aiohttp

from lamina.gateway import limits
from lamina.gateway.body_room import BodyRoom
from lamina.gateway.config import GatewaySettings
from lamina.gateway.conversation_index import ConversationIndex
from lamina.gateway.draining import Drain
from lamina.gateway.fit import Fitter
from lamina.gateway.fit_call import CallFitter
from lamina.gateway.journal import Journal
from lamina.gateway.learning import AnswerLearner
from lamina.gateway.mending import RequestMender
from lamina.gateway.metrics import GatewayMetrics
from lamina.gateway.misses import MissReporter
from lamina.gateway.policies import RequestPolicies
from lamina.gateway.recall_turns import RecallTurns
from lamina.gateway.refusals import Refusal
from lamina.gateway.saving import ConversationSaver
from lamina.gateway.served_windows import ServedWindows
from lamina.gateway.store_access import GatewayStore
from lamina.gateway.turn_memory import TurnMemory
from lamina.gateway.upstreams import Upstreams
from lamina.telemetry import Telemetry


class Gateway:
    """The parts of one gateway process."""

    def __init__(
        self,
        settings: GatewaySettings,
        *,
        session: aiohttp.ClientSession,
        store: GatewayStore,
        metrics: GatewayMetrics,
        journal: Journal,
        environment: Mapping[str, str],
        telemetry: Telemetry,
        drain: Drain,
    ) -> None:
        self.settings = settings
        self.session = session
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
        self.learner = AnswerLearner(index, self.saver)

        self.policies = RequestPolicies(ServedWindows(environment))
        call_fitter = CallFitter(self.policies, metrics, journal)
        self.fitter = Fitter(
            settings,
            self.policies,
            call_fitter=call_fitter,
            store=store,
            index=index,
            saver=self.saver,
            metrics=metrics,
            journal=journal,
        )
        self.mender = RequestMender(
            self.policies,
            call_fitter=call_fitter,
            index=index,
            saver=self.saver,
            metrics=metrics,
            journal=journal,
        )
        self.recall_turns = RecallTurns(
            keep,
            call_fitter=call_fitter,
            store=store,
            index=index,
            saver=self.saver,
            learner=self.learner,
            metrics=metrics,
        )
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
