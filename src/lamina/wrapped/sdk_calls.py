"""The calls of an SDK's methods that go through a relay, and what is remembered of their answers.

SDKs send a request at different times: when the method is called, when the first chunk of a generator is
read, or when a context manager is entered. Whatever leaves meanwhile belongs to the call: `running_call` says
so to the transport (`lamina.wrapped.sdk_transports`). What the SDK makes of the response is its own.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any
from weakref import ReferenceType, ref

from lamina.errors import BadInput
from lamina.fitting.fitted import Fitted
from lamina.wrapped.in_process import CallOutcome, InProcessRelay, RunningCall, running_call

NAMES = 256
"""How many named conversations have their last call remembered: those that were used last."""

SEVERAL = 2
"""How many unnamed conversations are enough to know that there is more than one."""


class ClientCalls:
    """The calls of one wrapped client, and the last answered one of each of its conversations.

    `name` is the client's own for the conversation of all calls, "" if each is recognised by its content.
    """

    def __init__(self, relay: InProcessRelay, *, sign: Callable[[Any], Any] | None) -> None:
        self.relay = relay
        self.name = ""
        self._sign = sign
        self._named: dict[str, CallOutcome] = {}
        self._unnamed: dict[str, CallOutcome] = {}
        self._answers = AnswerCalls()

    def with_name(self, name: str) -> ClientCalls:
        """The same calls, for those of one named conversation."""
        view = ClientCalls(self.relay, sign=self._sign)
        vars(view).update(vars(self), name=name)
        return view

    def begin(self) -> SdkCall:
        return SdkCall(
            self.relay, CallOutcome(self.name, on_begun=self._note, sign=self._sign), self._answers
        )

    def _note(self, outcome: CallOutcome) -> None:
        """A call is being answered."""
        assert outcome.outgoing is not None  # noqa: S101
        conversation = outcome.outgoing.conversation_name
        if outcome.name:
            self._named.pop(outcome.name, None)
            self._named[outcome.name] = outcome
            if len(self._named) > NAMES:
                del self._named[next(iter(self._named))]
        elif conversation in self._unnamed or len(self._unnamed) < SEVERAL:
            self._unnamed[conversation] = outcome

    def last_fitted(self) -> Fitted | None:
        """The request that was answered last, under this name or in the only unnamed conversation."""
        if self.name:
            last = self._named.get(self.name)
        elif len(self._unnamed) > 1:
            raise BadInput(
                "this client has had calls of more than one conversation",
                place="fitted",
                hint="use client.fitted_of(answer), or client.conversation(name).fitted",
            )
        else:
            last = next(iter(self._unnamed.values()), None)
        return None if last is None else last.fitted

    def fitted_of(self, answer: Any) -> Fitted | None:
        """The request of an answer; None if the answer is not one of this client's."""
        outcome = self._answers.call_of(answer)
        return None if outcome is None else outcome.fitted


class AnswerCalls:
    """Which call each answer belongs to, for as long as somebody holds the answer."""

    def __init__(self) -> None:
        self._calls: dict[int, tuple[ReferenceType[Any], CallOutcome]] = {}

    def remember(self, answer: Any, call: CallOutcome) -> None:
        """Remember the call of an answer. Objects without weak references cannot be remembered."""
        key = id(answer)
        try:
            pointer = ref(answer, lambda _: self._calls.pop(key, None))
        except TypeError:
            return
        self._calls[key] = (pointer, call)

    def call_of(self, answer: Any) -> CallOutcome | None:
        if id(answer) not in self._calls:
            return None
        pointer, call = self._calls[id(answer)]
        if pointer() is not answer:  # the id of a dead object was given to a new one
            return None
        return call


def relay_calls(send: Callable[..., Any], calls: ClientCalls, path: str) -> Callable[..., Any]:
    """A function like `send` whose requests go through the relay. `path` is where the client has it.

    Some methods send when they are called, with or without `await`. Those that return a context manager
    send when it is entered.
    """

    @wraps(send)
    def send_now(*arguments: Any, **request: Any) -> Any:
        call = calls.begin()
        with call.running():
            answer = send(*arguments, **request)
        return call.take(answer)

    @wraps(send)
    async def send_async(*arguments: Any, **request: Any) -> Any:
        call = calls.begin()
        with call.running():
            answer = await send(*arguments, **request)
        return call.take(answer)

    @wraps(send)
    def send_when_entered(*arguments: Any, **request: Any) -> Any:
        return SentWhenEntered(send(*arguments, **request), calls.begin())

    if path.endswith(".stream") or ".with_streaming_response." in path:
        return send_when_entered
    if inspect.iscoroutinefunction(inspect.unwrap(send)):
        return send_async
    return send_now


class SdkCall:
    """One call of an SDK's method."""

    def __init__(self, relay: InProcessRelay, outcome: CallOutcome, answers: AnswerCalls) -> None:
        self._outcome = outcome
        self._answers = answers
        self._running = RunningCall(relay, outcome)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Inside, requests of this context belong to the call. An error of lamina's is raised as it is."""
        token = running_call.set(self._running)
        try:
            yield
        except Exception:
            if self._outcome.error is not None:
                raise self._outcome.error from None
            raise
        finally:
            running_call.reset(token)

    def take(self, answer: Any) -> Any:
        """Remember whose answer it is. A generator of Gemini or Ollama sends when it is first read."""
        if inspect.isgenerator(answer):
            answer = self._iterate(answer)
        elif inspect.isasyncgen(answer):
            answer = self._iterate_async(answer)
        self.remember(answer)
        return answer

    def remember(self, answer: Any) -> None:
        self._answers.remember(answer, self._outcome)

    def _iterate(self, chunks: Any) -> Iterator[Any]:
        try:
            while True:
                with self.running():
                    chunk = next(chunks, _END)
                if chunk is _END:
                    return
                yield chunk
        finally:
            chunks.close()

    async def _iterate_async(self, chunks: Any) -> AsyncIterator[Any]:
        try:
            while True:
                with self.running():
                    chunk = await anext(chunks, _END)
                if chunk is _END:
                    return
                yield chunk
        finally:
            await chunks.aclose()


_END = object()


class SentWhenEntered:
    """A context manager of an SDK, which sends its request when it is entered."""

    def __init__(self, manager: Any, call: SdkCall) -> None:
        self._manager = manager
        self._call = call

    def __enter__(self) -> Any:
        with self._call.running():
            entered = self._manager.__enter__()
        self._call.remember(entered)
        return entered

    def __exit__(self, *error: object) -> Any:
        return self._manager.__exit__(*error)

    async def __aenter__(self) -> Any:
        with self._call.running():
            entered = await self._manager.__aenter__()
        self._call.remember(entered)
        return entered

    async def __aexit__(self, *error: object) -> Any:
        return await self._manager.__aexit__(*error)
