"""The session for programs without an event loop: `Session` runs the async session in a background thread.

    with Session.open("chats.db", "support-42", model="gpt-5") as session:
        session.ask("Summarise this", attach=["docs/spec.md"])
        answer = client.chat.completions.create(**session.request())
        session.record(answer)

Each open session has one event loop, in a thread of its own. Safe to use from several threads.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from lamina.sessions import Session as Async

__all__ = ["Session"]

P = ParamSpec("P")
T = TypeVar("T")


def _run_blocking(
    method: Callable[Concatenate[Async, P], Awaitable[T]],
) -> Callable[Concatenate[Session, P], T]:
    """A method that runs the async one in the session's thread, and waits for it."""

    @wraps(method)
    def call(self: Session, /, *args: P.args, **kwargs: P.kwargs) -> T:
        self.session.check_open()
        return self.portal.call(partial(method, self.session, *args, **kwargs))

    return call


def _run_directly(method: Callable[Concatenate[Async, P], T]) -> Callable[Concatenate[Session, P], T]:
    """A method that calls the one of the async session, which is not async itself.

    It is only for what reads the log: that is a tuple, which nobody changes.
    """

    @wraps(method)
    def call(self: Session, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return method(self.session, *args, **kwargs)

    return call


def _run_in_turn(method: Callable[Concatenate[Async, P], T]) -> Callable[Concatenate[Session, P], T]:
    """A method that builds, or changes what is built with, in the session's thread.

    The memos of a builder are no thread's but that one's. A closed session has no thread any more.
    """

    @wraps(method)
    def call(self: Session, /, *args: P.args, **kwargs: P.kwargs) -> T:
        run = partial(method, self.session, *args, **kwargs)
        if self.session.is_closed:
            return run()
        return self.portal.call(run)

    return call


def _open_blocking(
    open_async: Callable[P, AbstractAsyncContextManager[Async]],
) -> Callable[P, AbstractContextManager[Session]]:
    """A context manager that starts the thread and opens the async session in it."""

    @wraps(open_async)
    @contextmanager
    def open_session(*args: P.args, **kwargs: P.kwargs) -> Iterator[Session]:
        with (
            start_blocking_portal() as portal,
            portal.wrap_async_context_manager(open_async(*args, **kwargs)) as session,
        ):
            yield Session(session, portal)

    return open_session


class Session:
    """One open conversation. `session` is the async session, and has the same properties."""

    def __init__(self, session: Async, portal: BlockingPortal) -> None:
        self.session = session
        self.portal = portal

    open = staticmethod(_open_blocking(Async.open))

    ask = _run_blocking(Async.ask)
    record = _run_blocking(Async.record)
    results = _run_blocking(Async.results)
    add = _run_blocking(Async.add)
    build = _run_blocking(Async.build)
    request = _run_blocking(Async.request)
    pin = _run_blocking(Async.pin)
    rewind = _run_blocking(Async.rewind)
    regenerate = _run_blocking(Async.regenerate)
    reload = _run_blocking(Async.reload)

    check_open = _run_directly(Async.check_open)
    is_own_call = _run_directly(Async.is_own_call)
    explain = _run_in_turn(Async.explain)
    report = _run_in_turn(Async.report)
    dialogue = _run_directly(Async.dialogue)
    tail = _run_directly(Async.tail)
    recall = _run_directly(Async.recall)
    limit = _run_in_turn(Async.limit)
    forgo_switch = _run_in_turn(Async.forgo_switch)
    drop_thinking = _run_in_turn(Async.drop_thinking)
    set_history = _run_in_turn(Async.set_history)

    def fork(self, at: int | str | None = None, name: str = "", *, task: str = "") -> Session:
        """As `lamina.sessions.Session.fork`."""
        self.session.check_open()
        return Session(self.portal.call(partial(self.session.fork, at, name, task=task)), self.portal)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not isinstance(getattr(Async, name, None), property):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.session, name)
