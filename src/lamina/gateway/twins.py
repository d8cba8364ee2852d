"""Makes the twin run: sends some calls once more as the client wrote them, and compares the model's choices.

    client ──▶ gateway ──▶ fitted request ──▶ model ──▶ answer ──▶ client
                  └──────▶ the client's own request ──▶ model ──▶ compared, counted, forgotten

The second call is made when the client has its answer, with the same key, and nobody sees what it says. Only
calls with tools are sent twice, and only after lamina has lowered something. What was found is kept in the
store, so that a run goes on after a restart, and workers of one gateway make one run. `lamina.replay.twin`
has the test, the choice of calls and the spending limit.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import NamedTuple, Self

import aiohttp
import msgspec
from multidict import CIMultiDict
from yarl import URL

from lamina.conversations.answer_bodies import read_answer
from lamina.conversations.costs import price_usage
from lamina.conversations.record import Answered
from lamina.conversations.store import changes_requests
from lamina.dialects.port import Absorbed
from lamina.dialects.usage import Usage
from lamina.errors import Conflict, LaminaError
from lamina.gateway.calls import IncomingRequest, OutgoingRequest
from lamina.gateway.config import GatewaySettings, TwinTable
from lamina.gateway.conversation_store import GatewayStore, StoreGone
from lamina.gateway.journal import Journal
from lamina.gateway.metrics import GatewayMetrics
from lamina.gateway.usage import UsageReader
from lamina.replay.twin import Twin, TwinSettings, TwinTally, compare_choices, list_chosen
from lamina.stores.port import OwnName, Where

AT_ONCE = 4
"""Second calls in flight. More would compete with the calls that somebody waits for."""

SECONDS = 300.0
"""How long a second call may take, from its first byte to its last."""

TRIES = 8
"""How often a tally is read again because another worker has added to it."""

FAILED = "failed"


class AnswerBody(NamedTuple):
    """An answer as it came."""

    body: bytes
    content_type: str
    encoding: str

    @classmethod
    def of(cls, answer: aiohttp.ClientResponse, body: bytes) -> Self:
        headers = answer.headers
        return cls(body, headers.get("content-type", ""), headers.get("content-encoding", ""))

    def read(self, dialect: str) -> Absorbed:
        """What the model said. Raises BadInput if these bytes are no answer."""
        described = Answered(id="", at=0.0, content_type=self.content_type, encoding=self.encoding)
        return read_answer(self.body, described, dialect)

    def usage(self) -> Usage:
        reader = UsageReader(self.content_type, self.encoding)
        reader.feed(self.body)
        return reader.finish()


class TwinCall(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A call that was answered, and what is needed to send the client's own request."""

    incoming: IncomingRequest
    outgoing: OutgoingRequest
    url: URL
    headers: CIMultiDict[str]
    body: bytes
    answer: AnswerBody
    usage: Usage

    @property
    def upstream(self) -> str:
        return self.incoming.upstream.name

    def price(self, usage: Usage) -> float:
        """Dollars for such a call; 0 for a model without a price, such as one on the user's own machine."""
        dialect = self.incoming.dialect.name
        return price_usage(usage, self.incoming.model, dialect=dialect) or 0.0

    def expected_price(self) -> float:
        """What the second call costs if its tokens grow as its bytes do, and nothing of it is cached."""
        sent_bytes = len(self.outgoing.body or self.body)
        tokens = round(self.usage.input * len(self.incoming.body.text) / max(sent_bytes, 1))
        return self.price(Usage(input=tokens, output=self.usage.output))


class TwinCalls:
    """The twin runs of one gateway process, one for each upstream."""

    def __init__(
        self,
        settings: GatewaySettings,
        *,
        session: aiohttp.ClientSession,
        store: GatewayStore,
        metrics: GatewayMetrics,
        journal: Journal,
    ) -> None:
        self._salt = settings.twin.salt
        self._first_byte = settings.deadlines.first_byte
        self._session = session
        self._store = store
        self._metrics = metrics
        self._journal = journal
        self._twins = {name: Twin(_twin_settings(settings.twin)) for name in settings.upstreams}
        self._stored = {name: TwinTally() for name in settings.upstreams}
        self._saving = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def load(self) -> None:
        """Go on where the last run of this gateway stopped. Without a store each run begins anew."""
        with suppress(StoreGone):
            for name, twin in self._twins.items():
                tally, _ = await self._read(name)
                self._stored[name] = tally
                twin.take_tally(tally)

    def chooses(self, incoming: IncomingRequest, outgoing: OutgoingRequest) -> bool:
        """Whether a call may be sent twice. What it would cost is known only after its answer."""
        fitted = outgoing.fitted
        if fitted is None or not changes_requests(fitted.ledger):  # both calls would be the same
            return False
        if not incoming.request.get("tools"):
            return False
        if len(self._tasks) >= AT_ONCE:
            return False
        return self._twins[incoming.upstream.name].chooses(_name(outgoing))

    def send(self, call: TwinCall) -> None:
        """Send the client's own request in the background, unless it would cost more than is left."""
        if not self._twins[call.upstream].wants(_name(call.outgoing), cost=call.expected_price()):
            return
        task = asyncio.ensure_future(self._compare(call))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End the second calls that nobody waits for any more."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _compare(self, call: TwinCall) -> None:
        twin = self._twins[call.upstream]
        name = _name(call.outgoing)
        cost = 0.0
        try:
            own = await self._ask(call)
            cost = call.price(own.usage())
            dialect = call.incoming.dialect.name
            verdict = compare_choices(list_chosen(own.read(dialect)), list_chosen(call.answer.read(dialect)))
        except (aiohttp.ClientError, OSError, TimeoutError, LaminaError, _NoAnswer):
            twin.give_up(name, cost=cost)
            outcome = FAILED
        except asyncio.CancelledError:  # the gateway stops: what the upstream did so far may be paid for
            twin.give_up(name, cost=call.expected_price())
            raise
        else:
            twin.add_verdict(name, verdict, cost=cost)
            outcome = verdict.value
        self._metrics.add("lamina_twin_calls_total", upstream=call.upstream, verdict=outcome)
        self._metrics.add("lamina_twin_dollars_total", cost, upstream=call.upstream)
        await self._save(call.upstream)
        report = twin.report()
        self._journal.write(
            "twin",
            upstream=call.upstream,
            conversation=call.outgoing.conversation_name,
            verdict=outcome,
            decision=report.decision,
            same=report.same,
            compared=report.compared,
            failed=report.failed,
            spent=round(report.spent, 6),
            report=str(report),
        )

    async def _ask(self, call: TwinCall) -> AnswerBody:
        """The model's answer to the client's own request. Raises _NoAnswer if it was refused."""
        async with (
            asyncio.timeout(self._first_byte + SECONDS),
            self._session.post(
                call.url, data=call.body, headers=call.headers, allow_redirects=False
            ) as answer,
        ):
            body = await answer.read()
            if answer.status >= 300:
                raise _NoAnswer
            return AnswerBody.of(answer, body)

    async def _save(self, name: str) -> None:
        """Add what is new here to the tally in the store, which other workers add to as well."""
        twin = self._twins[name]
        async with self._saving:
            stored_tally = self._stored[name]
            new = twin.tally.since(stored_tally)
            for _ in range(TRIES):
                try:
                    stored, source = await self._read(name)
                    merged = stored.plus(new)
                    state = msgspec.json.encode(merged)
                    await self._store.call(
                        lambda store, source=source, state=state: store.append(  # type: ignore[misc]
                            _place(name, self._salt), [], was=source, state=state
                        )
                    )
                except Conflict:
                    continue
                except StoreGone:
                    return  # it stays in memory, and is added the next time
                # Other calls may have been compared while this one was saved.
                added_meanwhile = twin.tally.since(stored_tally).since(new)
                self._stored[name] = merged
                twin.take_tally(merged.plus(added_meanwhile))
                return

    async def _read(self, name: str) -> tuple[TwinTally, bytes]:
        page = await self._store.call(lambda store: store.read(_place(name, self._salt), last=0))
        source = page.head.state or b""
        if not source:
            return TwinTally(), b""
        try:
            return msgspec.json.decode(source, type=TwinTally), source
        except (msgspec.MsgspecError, RecursionError):
            return TwinTally(), source  # of another release: the run begins anew


class _NoAnswer(Exception):
    """The upstream refused the client's own request: most often it is too long for the model."""


def _twin_settings(table: TwinTable) -> TwinSettings:
    return TwinSettings(
        share=table.share,
        spend=table.spend,
        most=table.most,
        bar=table.bar,
        alpha=table.alpha,
        salt=table.salt,
    )


def _name(outgoing: OutgoingRequest) -> str:
    return f"{outgoing.conversation_name}/{outgoing.number}"


def _place(upstream: str, salt: str) -> Where:
    """Where the tally of an upstream is stored. A run with another salt is another run."""
    return Where(OwnName("lamina.twins"), f"{upstream}/{salt}")
