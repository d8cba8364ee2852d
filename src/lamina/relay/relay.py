"""What all calls of one relay share, and how its parts are put together.

policies ──▶ fitter ──▶ sent_calls     what to send, and what follows
index ──▶ saver                        what is remembered between two requests
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, NamedTuple

from lamina.relay.config import GatewaySettings
from lamina.relay.conversation_index import ConversationIndex
from lamina.relay.fit import Fitter
from lamina.relay.fit_call import CallFitter
from lamina.relay.journal import Journal
from lamina.relay.misses import AnswerLog
from lamina.relay.observers import CallMetrics
from lamina.relay.policies import RequestPolicies, ServedWindows
from lamina.relay.request_bodies import RequestBody, decode_body
from lamina.relay.saving import ConversationSaver
from lamina.relay.sent_calls import SentCalls
from lamina.relay.store_access import GatewayStore
from lamina.relay.turn_memory import TurnMemory
from lamina.relay.upstreams import Upstreams
from lamina.telemetry import Telemetry


class Door(NamedTuple):
    """What gives a relay its requests. `name` is what the record calls it.

    `shares_store`: other processes may write to its store. `is_strict`: a request that is not valid is
    refused. Otherwise its upstream says so, as long as nothing of the conversation was cut.
    """

    name: str
    shares_store: bool = False
    is_strict: bool = False


GATEWAY = Door("gateway")


class Relay:
    """The parts of one relay. It knows no socket and no SDK."""

    def __init__(
        self,
        settings: GatewaySettings,
        *,
        store: GatewayStore,
        metrics: CallMetrics,
        journal: Journal,
        environment: Mapping[str, str],
        telemetry: Telemetry,
        door: Door = GATEWAY,
    ) -> None:
        self.settings = settings
        self.door = door
        self.metrics = metrics
        self.journal = journal
        self.environment = environment
        self.telemetry = telemetry
        self.upstreams = Upstreams(settings)
        self.log = AnswerLog(metrics, journal, telemetry)

        keep = settings.policy.keep
        shared = settings.shares_store or door.shares_store
        self.index = index = ConversationIndex(store, shared=shared, keep=keep, door=door.name)
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
            is_strict=door.is_strict,
        )
        self.fitter = Fitter(call_fitter)
        self.sent_calls = SentCalls(call_fitter)
        self._memories: dict[str, TurnMemory] = {}
        self._tasks: set[asyncio.Future[None]] = set()

    def decode(self, text: bytes, workspace: str, *, packed: bytes | None = None) -> RequestBody:
        """Decode the body of a request. Raises Refusal if it is none.

        Each workspace has a memory of messages: how fast one is decoded tells nothing about another's.
        """
        if workspace not in self._memories:
            self._memories[workspace] = TurnMemory()
        return decode_body(text, self._memories[workspace], packed=packed)

    def finish_later(self, work: Coroutine[Any, Any, None]) -> None:
        """Finish something that must not end with the client's connection."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish_all(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)
