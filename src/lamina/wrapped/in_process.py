"""A relay in this process, for clients that have no gateway: the calls of one transport, in one thread.

    client's thread or loop                     the relay's thread
    call ─────────────────────────────────────▶ find, fit, keep
    send it with the client's own transport ◀── what leaves
    read the answer ──────────────────────────▶ recalls, usage, record
    what the client sees ◀───────────────────── pieces

The relay has one event loop for all clients of the process, so conversations and their store belong to no
loop of a client. Everything that the client's own transport does happens where the client called: a
`Driver` gets it as steps from the relay, does them, and gives back what came.
"""

from __future__ import annotations

import asyncio
import atexit
import os
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future, wait
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from http import HTTPStatus
from os import PathLike, fspath
from threading import Lock, Thread
from time import monotonic
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote
from weakref import WeakKeyDictionary, WeakSet, finalize

import msgspec

from lamina.conversations.events import Listeners
from lamina.conversations.lost_caches import NOT_CACHED
from lamina.conversations.recognise import NAME, is_named, list_ids
from lamina.conversations.store import WORKSPACE
from lamina.core.text.characters import lower_ascii
from lamina.core.values import Ledger
from lamina.dialects import DIALECTS
from lamina.errors import BadInput, LaminaError
from lamina.fitting.policy import Policy
from lamina.fitting.recalls import TURN_FIELDS
from lamina.fitting.request import Fitted, fit_after_passed, fit_request
from lamina.relay.calls import OutgoingRequest
from lamina.relay.client_request import ClientHead, ClientRequest
from lamina.relay.config import GatewaySettings, ProfileName, UpstreamSettings
from lamina.relay.events import AnsweredEvent, SentEvent
from lamina.relay.exchange import Exchange, write_refusal
from lamina.relay.identity import ClientIdentity, read_header_identity
from lamina.relay.journal import NoJournal
from lamina.relay.live_conversation import LiveConversation
from lamina.relay.observers import NoMetrics
from lamina.relay.refusals import BrokenOff, Refusal
from lamina.relay.relay import Door, Relay
from lamina.relay.routes import RouteMatch
from lamina.relay.security import Headers, Visitor
from lamina.relay.store_access import GatewayStore
from lamina.relay.stream import AnswerWriter
from lamina.relay.upstream_port import Origin, ProviderReply
from lamina.relay.upstreams import Upstream
from lamina.settings import Settings
from lamina.stores.address import open_store, resolve_key
from lamina.stores.checked import NewGroup
from lamina.stores.memory import MemoryStore
from lamina.stores.port import Store, StoredHead, Where
from lamina.telemetry import CallTrace, active

PLACES = 1_024
"""Conversations, and lists of them, that are remembered without a store."""

_PROFILES: dict[str, ProfileName] = {
    "anthropic": "anthropic",
    "gemini": "gemini",
    "ollama": "ollama",
    "bedrock_converse": "bedrock",
}

_CONVERSATION_FIELDS = (*TURN_FIELDS, "prompt", "previous_response_id", "conversation")
"""The fields that hold a conversation, or say which one goes on."""

StoreChoice = Store | str | PathLike[str] | None


class RecentStore(MemoryStore):
    """A store in memory that forgets what was not written for longest."""

    def __init__(self) -> None:
        super().__init__()
        self._order: OrderedDict[Where, None] = OrderedDict()

    async def _append_group(self, group: NewGroup) -> StoredHead:
        head = await super()._append_group(group)
        self._order[group.where] = None
        self._order.move_to_end(group.where)
        while len(self._order) > PLACES:
            oldest, _ = self._order.popitem(last=False)
            await self._delete(oldest)
        return head


class BrokenAnswer(Exception):
    """An answer that has begun will not come to its end. The client's HTTP module has an error for it."""


class Sending(NamedTuple):
    """A request as it leaves: its headers that differ from the client's, and its body."""

    headers: Headers
    body: bytes


class Received(NamedTuple):
    """An answer that has begun. `body` is all of it, None if it comes in pieces."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes | None


class Driver(Protocol):
    """Where the client called. `put` may be called in any thread, and does a step there."""

    def put(self, step: Step) -> None:
        """Do this next."""

    @property
    def send(self) -> Callable[..., Any]:
        """What sends a request with the client's own transport."""

    @property
    def read(self) -> Callable[..., Any]:
        """What reads the next piece of its answer."""


class Step(NamedTuple):
    """What the client's side has to do. An `action` is done, and its outcome goes into the `future`.

    Without one it is something for the client: the head of an answer, a piece of it, or its end.
    """

    action: Callable[..., Any] | None = None
    arguments: tuple[Any, ...] = ()
    future: asyncio.Future[Any] | None = None
    head: tuple[int, Headers] | None = None
    piece: bytes = b""
    error: BaseException | None = None
    is_end: bool = False

    def give(self, outcome: Any, error: BaseException | None = None) -> None:
        """Hand the outcome of an action to the relay."""
        assert self.future is not None  # noqa: S101 - an action has one
        self.future.get_loop().call_soon_threadsafe(_resolve, self.future, outcome, error)


def _resolve(future: asyncio.Future[Any], outcome: Any, error: BaseException | None) -> None:
    if future.done():  # the call was given up
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(outcome)


class CallOutcome:
    """One call of a client, and what became of it: the request that was answered, or lamina's own error.

    `name` is the client's own for its conversation. `sign` signs a request that is not the client's any more.
    """

    def __init__(
        self,
        name: str = "",
        *,
        on_begun: Callable[[CallOutcome], None] | None = None,
        sign: Callable[[Any], Any] | None = None,
    ) -> None:
        self.name = name
        self.sign = sign
        self._on_begun = on_begun
        self.outgoing: OutgoingRequest | None = None
        self.policy = Policy()
        self.error: Exception | None = None
        self._whole: Fitted | None = None

    def begun(self, outgoing: OutgoingRequest) -> None:
        """A request is being answered."""
        self.outgoing = outgoing
        if self._on_begun is not None:
            self._on_begun(self)

    @property
    def fitted(self) -> Fitted | None:
        """The request as `fit_request` returned it. One that was passed is fitted now: nothing changes."""
        outgoing = self.outgoing
        if outgoing is None or outgoing.call is None:
            return None
        if outgoing.fitted is not None:
            return outgoing.fitted
        if self._whole is None:
            call = outgoing.call
            options: dict[str, Any] = {"dialect": call.incoming.dialect, "policy": self.policy}
            if outgoing.basis.passed is None:
                self._whole = fit_request(call.request, **options)
            else:
                self._whole = fit_after_passed(call.request, outgoing.basis.passed, **options)
        return self._whole


class _Reported(NamedTuple):
    """What listeners heard of a conversation: its last fitted request, and that nothing is cached."""

    fitted: Fitted | None = None
    is_uncached: bool = False


class CallReports:
    """Tells the listeners of an application about answered requests."""

    def __init__(self, listeners: Listeners) -> None:
        self._listeners = listeners
        self._reported: WeakKeyDictionary[LiveConversation, _Reported] = WeakKeyDictionary()

    def report(self, event: AnsweredEvent) -> None:
        """Report what was done to a request that was answered, and whether its cache was lost."""
        incoming, outgoing, usage = event.sent.incoming, event.sent.outgoing, event.usage
        conversation = outgoing.conversation
        if conversation is None:
            return
        last = self._reported.get(conversation, _Reported())
        name = conversation.name
        own_id = list_ids(incoming.identity.group)[0]
        if is_named(own_id):
            name = own_id.removeprefix(NAME)
        fitted = outgoing.fitted
        if fitted is not None and fitted is not last.fitted:
            before = outgoing.basis.ledger or Ledger()
            self._listeners.report_request(fitted, before, last.fitted, name, number=outgoing.number)
            last = last._replace(fitted=fitted)
        if outgoing.previous is not None and usage.input:
            cut = next(reversed(outgoing.new_cuts), None)
            miss = self._listeners.report_miss(
                outgoing.previous,
                outgoing.request,
                dialect=incoming.dialect,
                model=incoming.model,
                cut=cut,
                usage=usage,
                last_usage=outgoing.previous_usage,
                gap=outgoing.gap,
                was_uncached=last.is_uncached,
                conversation=name,
                number=outgoing.number,
                report=event.report,
            )
            last = last._replace(
                is_uncached=last.is_uncached or (miss is not None and miss.cause == NOT_CACHED)
            )
        self._reported[conversation] = last


class ProcessCall:
    """One call of a client in this process: what it sends, and the driver that it goes through.

    It is the way to the upstream for the relay, takes the answer for the client, and hears what was answered.
    """

    is_write_paused = False

    def __init__(
        self,
        driver: Driver,
        *,
        origin: str,
        target: bytes,
        headers: Headers,
        body: bytes,
        route: RouteMatch,
        reports: CallReports,
        outcome: CallOutcome,
    ) -> None:
        self._driver = driver
        self._reports = reports
        self.origin = origin
        self.target = target
        self.headers = headers
        self.body = body
        self.route = route
        self.outcome = outcome
        self._outgoing: OutgoingRequest | None = None
        self._has_begun = False

    async def ask(
        self,
        method: str,
        origin: Origin,
        target: bytes,
        headers: Headers,
        body: Any,
        *,
        is_again: bool = False,
    ) -> ProviderReply:
        """Send a request with the client's own transport."""
        del method, origin, target, is_again
        received = await self.do(self._driver.send, Sending(headers, body))
        return _DrivenReply(self, self._driver, received)

    async def do(self, action: Callable[..., Any], *arguments: Any) -> Any:
        """Have the client's side do something, and wait for its outcome."""
        future = asyncio.get_running_loop().create_future()
        self._driver.put(Step(action, arguments, future))
        return await future

    async def send_head(self, status: int, headers: Headers, *, joins_body: bool = False) -> None:
        """Give the client the head of its answer."""
        del joins_body
        if (b"x-lamina-refused", b"1") in headers:
            headers = [*headers, (b"x-should-retry", b"false")]  # OpenAI's and Anthropic's SDKs heed it
        if status < HTTPStatus.MULTIPLE_CHOICES and self._outgoing is not None:
            self._has_begun = True
            self.outcome.begun(self._outgoing)
        self._driver.put(Step(head=(status, headers)))

    async def send_body(self, piece: bytes, *, is_last: bool = False) -> None:
        """Give the client a piece of its answer. The end follows when everything is kept."""
        del is_last
        if piece:
            self._driver.put(Step(piece=piece))

    def abort(self) -> None:
        """Nothing waits for the client."""

    def end(self, error: BaseException | None) -> None:
        self._driver.put(Step(is_end=True, error=error))

    def sent(self, event: SentEvent) -> None:
        """A request leaves: the client's, or another one after a refusal or a recall."""
        self._outgoing = event.outgoing
        if self._has_begun:
            self.outcome.begun(event.outgoing)

    def answered(self, event: AnsweredEvent) -> None:
        """Tell the listeners of the application."""
        if event.is_counted:
            self._reports.report(event)


class _DrivenReply:
    """The answer to one request, as the relay reads it."""

    def __init__(self, call: ProcessCall, driver: Driver, received: Received) -> None:
        self._call = call
        self._driver = driver
        self._rest = received.body
        self.is_complete = received.body is not None
        self.is_read = received.body == b""
        self.is_at_hand = True  # the client's own timeouts hold, and none of the relay's
        self.status = received.status
        self.raw_headers = received.headers
        self.headers: dict[str, str] = {}
        for name, value in received.headers:
            text = value.decode("utf-8", "replace")
            self.headers.setdefault(lower_ascii(name.decode("latin-1")), text)

    async def read(self) -> bytes:
        """The next bytes; b"" after the last ones."""
        if self.is_read:
            return b""
        if self._rest is not None:
            piece: bytes = self._rest
            self.is_read = True
            return piece
        piece = await self._call.do(self._driver.read)
        self.is_read = self.is_complete = not piece
        return piece

    def release(self) -> None:
        """The driver closes what it has opened, when the call ends."""


class InProcessRelay:
    """The relay of one client, with its store. It is opened by its first call."""

    def __init__(self, policy: Policy, *, store: StoreChoice, key: Any, listeners: Listeners) -> None:
        if key is not None and not isinstance(store, str | PathLike):
            hint = "seal it yourself: Sealed(store, key); or give an address"
            if store is None:
                raise BadInput("a key without a store", place="wrap", hint='give store="chats.db", too')
            raise BadInput("a store that is open takes no key", place="key", hint=hint)
        self.policy = policy
        self.reports = CallReports(listeners)
        self._has_store = store is not None
        keep = policy.keep
        if store is None:
            keep = "nothing"
            store = RecentStore()
        settings = GatewaySettings(
            policy=msgspec.structs.replace(policy, keep=keep),
            first_byte_seconds=1e9,
            retry_seconds=0.0,
            inspect=False,
        )
        self._settings = settings
        self._open_store = partial(_open_given, store, key)
        self._begin_process()
        self._door = Door("wrap", shares_store=self._has_store, is_strict=True)
        self._upstreams: dict[tuple[str, str], Upstream] = {}

    def _begin_process(self) -> None:
        """Begin without a relay. A forked process has no thread of its parent, and opens the store again."""
        self._process = os.getpid()
        self._relay: Relay | None = None
        self._store = GatewayStore(self._settings, self._open_store)
        finalize(self, close_later, self._store).atexit = False
        _stores.add(self._store)

    def start(self, call: ProcessCall) -> Future[None]:
        """Begin a call. Its driver gets the steps."""
        if self._process != os.getpid():
            self._begin_process()
        return run_in_relay(self._run(call))

    def begin_with(self, name: str, ledger: Ledger) -> None:
        """Begin the conversations of this name with a ledger. Nothing else is remembered of them."""
        run_in_relay(self._begin_with(f"{NAME}{name}", ledger)).result()

    async def _begin_with(self, group: str, ledger: Ledger) -> None:
        relay = await self._open()
        relay.index.given_ledgers[group] = ledger
        relay.index.forget_group(group)

    async def _open(self) -> Relay:
        await self._store.open()
        if self._relay is None:
            self._relay = self._make_relay()
        return self._relay

    def close(self) -> None:
        """Close the store. Another call opens it again."""
        if self._relay is not None:
            run_in_relay(self._store.close()).result()

    async def _run(self, call: ProcessCall) -> None:
        error: BaseException | None = None
        try:
            await self._answer(call)
        except BaseException as raised:  # noqa: BLE001 - it is raised where the client called
            error = raised
        call.end(error)

    async def _answer(self, call: ProcessCall) -> None:
        dialect = DIALECTS[call.route.dialect]
        call.outcome.policy = self.policy
        trace = CallTrace()  # of a request that is refused before its model is known
        writer = AnswerWriter(call, trace)
        try:
            relay = await self._open()
            body = relay.decode(call.body, WORKSPACE)
            if not any(body.request.get(name) for name in _CONVERSATION_FIELDS):
                await self._pass(relay, call, writer)
                return
            model = call.route.model or body.model
            if self.policy.own_budget is None:
                self.policy.find_budget(model, dialect=dialect.name)  # raises if nobody knows its window
            trace = active().start_call(dialect.name, model)
            writer = AnswerWriter(call, trace)
            await self._exchange(relay, call, writer, body, trace)
        except Refusal as refusal:
            call.outcome.error = refusal.error
            await self._refuse(writer, refusal, dialect.name)
        except LaminaError as error:
            call.outcome.error = error
            await self._refuse(writer, Refusal(400, str(error)), dialect.name)
        except BaseException as error:
            trace.end(type(error).__name__)
            raise
        finally:
            trace.end()

    async def _pass(self, relay: Relay, call: ProcessCall, writer: AnswerWriter) -> None:
        """Send a request that says nothing and continues nothing as it is.

        Ollama loads a model when it gets one. The other APIs refuse it with their own error.
        """
        head = self._read_head(call)
        exchange = Exchange(relay, head, writer, CallTrace(), connections=call, listener=call.answered)
        await exchange.pass_through(call.body)

    async def _exchange(
        self, relay: Relay, call: ProcessCall, writer: AnswerWriter, body: Any, trace: Any
    ) -> None:
        try:
            exchange = Exchange(
                relay,
                self._read_head(call),
                writer,
                trace,
                connections=call,
                listener=call.answered,
                on_sent=call.sent,
            )
            await exchange.answer(body)
        finally:
            await asyncio.shield(self._keep(relay))

    async def _keep(self, relay: Relay) -> None:
        """Store what the next request depends on, before the client has the end of the answer."""
        await relay.finish_all()
        if self._has_store:
            await relay.saver.flush()
            await relay.saver.flush_records()
        else:
            relay.saver.forget_pending()

    async def _refuse(self, writer: AnswerWriter, refusal: Refusal, dialect: str) -> None:
        """Answer with lamina's own error, which no SDK tries again.

        A stream that has begun cannot always say that it is broken. Then it breaks for the client, too.
        """
        if refusal.error is not None:
            refusal = Refusal(refusal.status, str(refusal.error), code=refusal.code)
        if writer.started and (isinstance(refusal, BrokenOff) or not writer.takes_events):
            raise BrokenAnswer(refusal.message)
        await write_refusal(writer, refusal, dialect)

    def _make_relay(self) -> Relay:
        return Relay(
            self._settings,
            store=self._store,
            metrics=NoMetrics(),
            journal=NoJournal(),
            environment={},
            telemetry=active(),
            door=self._door,
        )

    def _read_head(self, call: ProcessCall) -> ClientRequest:
        raw_path, _, query = call.target.partition(b"?")
        identity = read_header_identity(call.headers)
        if call.outcome.name:
            identity = ClientIdentity(f"{NAME}{call.outcome.name}")
        head = ClientHead(headers=call.headers, visitor=Visitor(), identity=identity, is_off=False)
        return ClientRequest(
            head=head,
            method="POST",
            path=unquote(raw_path.decode("latin-1")),
            raw_path=raw_path,
            query=query,
            headers=call.headers,
            route=call.route,
            prefixed=self._find_upstream(call.origin, call.route.dialect),
            began=monotonic(),
        )

    def _find_upstream(self, origin: str, dialect: str) -> Upstream:
        """The server of a call. Its name in the record is its address."""
        upstream = self._upstreams.get((origin, dialect))
        if upstream is None:
            profile = _PROFILES.get(dialect, "openai")
            settings = UpstreamSettings(url=origin, profile=profile, policy=self._settings.policy)
            upstream = Upstream(origin.partition("://")[2], settings)
            self._upstreams[origin, dialect] = upstream
        return upstream


class RunningCall(NamedTuple):
    """The call of a wrapped client that runs in this context."""

    relay: InProcessRelay
    outcome: CallOutcome


running_call: ContextVar[RunningCall | None] = ContextVar("lamina_running_call", default=None)


@asynccontextmanager
async def _open_given(store: Store | str | PathLike[str], key: Any) -> AsyncIterator[Store]:
    """Open the store at an address. One that is open already stays open."""
    if not isinstance(store, str | PathLike):
        yield store
        return
    resolved_key = await resolve_key(key, Settings(), os.environ)
    async with open_store(fspath(store), key=resolved_key) as opened:
        yield opened


class _RelayThread:
    """The thread in which all relays of this process run. It ends with the program."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.loop = asyncio.new_event_loop()
        Thread(target=self._serve, name="lamina", daemon=True).start()

    def _serve(self) -> None:
        # One task that never ends: anyio stops its worker threads with the outermost task that used them.
        self.loop.run_until_complete(self._stay())

    async def _stay(self) -> None:
        await self.loop.create_future()


_AT_THE_END = 10
"""Seconds that a program waits at its end until a store is closed."""

_stores: WeakSet[GatewayStore] = WeakSet()
_starting = Lock()
_thread: _RelayThread | None = None


def run_in_relay(work: Coroutine[Any, Any, Any]) -> Future[Any]:
    """Run something in the thread of the relays. A forked process starts its own."""
    global _thread  # noqa: PLW0603 - one for the process
    with _starting:
        if _thread is None or _thread.process != os.getpid():
            _thread = _RelayThread()
    return asyncio.run_coroutine_threadsafe(work, _thread.loop)


def close_later(store: GatewayStore) -> None:
    """Close a store whose client is gone. Any thread may say so, also while it collects garbage."""
    if _thread is not None and _thread.process == os.getpid() and store.is_open:
        run_in_relay(store.close())


@atexit.register
def _close_stores() -> None:
    """Close what is open, and wait for it."""
    closing = [run_in_relay(store.close()) for store in list(_stores) if store.is_open]
    wait(closing, timeout=_AT_THE_END)
