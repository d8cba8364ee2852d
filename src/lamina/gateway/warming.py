"""Keeps a prompt cache warm: sends the prefix again before its lifetime ends, where that is cheaper.

It is off by default (`keep_warm`). After each answer the gateway plans one such reading of its conversation,
shortly before the cache forgets it. A new request of the conversation takes its place. While the client stays
away, the prefix is read again only as often as pays, judged by the pauses of this kind of client
(`lamina.caches.lifetimes`). A reading is a request of the gateway's own: it is logged and recorded with its
usage, so that its cost is in every account. The headers of the client's last request, with its key, are held
in memory for it, and nowhere else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from time import time
from typing import Any

import aiohttp
import msgspec
from multidict import CIMultiDict
from yarl import URL

from lamina.caches import rules_for
from lamina.caches.lifetimes import count_warmings
from lamina.conversations.record import Answered, SentRequest
from lamina.dialects.usage import NOTHING_REPORTED, Usage
from lamina.fitting.policy import Keep
from lamina.fitting.warming import warm_request
from lamina.gateway.calls import IncomingRequest, OutgoingRequest
from lamina.gateway.journal import Journal
from lamina.gateway.live_conversations import DOOR, LiveConversation
from lamina.gateway.pauses import PauseBook
from lamina.gateway.saving import ConversationSaver
from lamina.gateway.usage import UsageReader

EARLY = 0.9
"""Of a lifetime, when a prefix is read again: the request must arrive, and be answered, before the end."""

PLANNED = 256
"""Readings that may be planned at a time. Each holds one request in memory."""

PATIENCE = 120.0
"""Seconds that an upstream may take for a reading."""

WARMED = "keeps the cache warm"
"""Why such a request was sent, in the record."""


class Warming(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A prefix that may be read again: the last request of a conversation, and how it was sent."""

    incoming: IncomingRequest
    outgoing: OutgoingRequest
    url: URL
    headers: CIMultiDict[str]


class PrefixWarmer:
    """Plans and sends the readings of one gateway process."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        pauses: PauseBook,
        saver: ConversationSaver,
        journal: Journal,
        keep: Keep,
    ) -> None:
        self._keep = keep
        self._session = session
        self._pauses = pauses
        self._saver = saver
        self._journal = journal
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}

    def plan(self, warming: Warming) -> None:
        """A request was answered. Plan to read its prefix again, if that pays and its API has a way to."""
        conversation = warming.outgoing.conversation
        if conversation is None or warming.incoming.upstream.settings.policy.keep_warm == "never":
            return
        key = conversation.key
        self._cancel(key)
        dialect = warming.incoming.dialect.name
        rules = rules_for(warming.incoming.model, dialect=dialect)
        pauses = self._pauses.list_pauses(warming.incoming)
        times = count_warmings(pauses, rules, warming.incoming.model)
        if not times or len(self._tasks) >= PLANNED:
            return
        warm = warm_request(warming.outgoing.request, dialect=dialect)
        if warm.request is None:
            self._journal.write("not kept warm", conversation=conversation.name, reason=warm.why_not)
            return
        pause = EARLY * rules.seconds(rules.word(warming.incoming.model))
        task = asyncio.ensure_future(self._keep_warm(warming, conversation, warm.request, times, pause))
        self._tasks[key] = task
        task.add_done_callback(lambda done: self._forget(key, done))

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task

    def _cancel(self, key: tuple[str, str]) -> None:
        task = self._tasks.pop(key, None)
        if task is not None:
            task.cancel()

    def _forget(self, key: tuple[str, str], done: asyncio.Task[None]) -> None:
        if self._tasks.get(key) is done:
            del self._tasks[key]

    async def _keep_warm(
        self,
        warming: Warming,
        conversation: LiveConversation,
        request: Mapping[str, Any],
        times: int,
        pause: float,
    ) -> None:
        body = msgspec.json.encode(request)
        for number in range(1, times + 1):
            await asyncio.sleep(pause)
            if conversation.request is not warming.outgoing.request:
                return  # a later request has been sent
            change = await self._saver.find_change(conversation)
            if change:  # a reading would be paid for nobody, or send what was deleted
                self._journal.write("not kept warm", conversation=conversation.name, reason=change)
                return
            is_warm = await self._read_again(warming, conversation, body, number)
            if not is_warm:
                return

    async def _read_again(
        self, warming: Warming, conversation: LiveConversation, body: bytes, number: int
    ) -> bool:
        """Send the reading, and record what it took. Whether the prefix is warm now."""
        incoming = warming.incoming
        sent_id = self._journal.write_sent(
            conversation=conversation.name, upstream=incoming.upstream.name, model=incoming.model
        )
        self._record_sent(warming, conversation, body, sent_id)
        status, usage = await self._send(warming, body)
        if self._keep != "nothing":
            conversation.record.add_answer(
                Answered(
                    id=sent_id,
                    at=round(time(), 3),
                    status=status,
                    usage=usage,
                )
            )
            self._saver.save_later(conversation)
        reported = usage or NOTHING_REPORTED
        self._journal.write(
            "kept warm",
            id=sent_id,
            conversation=conversation.name,
            model=incoming.model,
            dialect=incoming.dialect.name,
            number=number,
            status=status,
            input=reported.input,
            cached=reported.cached,
            written=reported.written,
            written_long=reported.written_long,
            output=reported.output,
        )
        return 200 <= status < 300

    def _record_sent(
        self, warming: Warming, conversation: LiveConversation, body: bytes, sent_id: str
    ) -> None:
        """Note a reading in the record. It repeats the last request of its conversation."""
        if self._keep == "nothing":
            return
        incoming = warming.incoming
        request = SentRequest(
            id=sent_id,
            at=round(time(), 3),
            door=DOOR,
            dialect=incoming.dialect.name,
            model=incoming.model,
            upstream=incoming.upstream.name,
            size=len(body),
            follows=conversation.sent_id,
            why=WARMED,
        )
        if self._keep == "all":
            conversation.record.add_sent(request, body=body)
        else:
            conversation.record.add_sent(request)

    async def _send(self, warming: Warming, body: bytes) -> tuple[int, Usage | None]:
        """The status of the answer and what it took; the status is 0 if there was no answer."""
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        try:
            async with self._session.post(
                warming.url, data=body, headers=warming.headers, timeout=timeout, allow_redirects=False
            ) as answer:
                reader = UsageReader(
                    answer.headers.get("content-type", ""), answer.headers.get("content-encoding", "")
                )
                reader.feed(await answer.read())
                reader.finish()
                return answer.status, reader.reported_usage
        except (aiohttp.ClientError, TimeoutError, OSError):
            return 0, None
