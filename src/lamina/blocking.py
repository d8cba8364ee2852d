"""The session for programs without an event loop: the same one, over a portal, not a second one.

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

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(method: Callable[Concatenate[Async, P], Awaitable[T]]) -> Callable[Concatenate[Session, P], T]:
    """A method that waits for that of the session behind it."""

    @wraps(method)
    def call(self: Session, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.portal.call(partial(method, self.session, *args, **kwargs))

    return call


def _plain(method: Callable[Concatenate[Async, P], T]) -> Callable[Concatenate[Session, P], T]:
    """A method that has nothing to wait for."""

    @wraps(method)
    def call(self: Session, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return method(self.session, *args, **kwargs)

    return call


def _opened(
    opens: Callable[P, AbstractAsyncContextManager[Async]],
) -> Callable[P, AbstractContextManager[Session]]:
    @contextmanager
    def opened(*args: P.args, **kwargs: P.kwargs) -> Iterator[Session]:
        with (
            start_blocking_portal() as portal,
            portal.wrap_async_context_manager(opens(*args, **kwargs)) as session,
        ):
            yield Session(session, portal)

    return wraps(opens)(opened)


class Session:
    """One conversation, open. `session` is the one behind it, with the same properties."""

    def __init__(self, session: Async, portal: BlockingPortal) -> None:
        self.session, self.portal = session, portal

    open = staticmethod(_opened(Async.open))

    ask = _blocking(Async.ask)
    record = _blocking(Async.record)
    results = _blocking(Async.results)
    add = _blocking(Async.add)
    build = _blocking(Async.build)
    request = _blocking(Async.request)
    pin = _blocking(Async.pin)
    rewind = _blocking(Async.rewind)
    regenerate = _blocking(Async.regenerate)
    reload = _blocking(Async.reload)

    explain = _plain(Async.explain)
    report = _plain(Async.report)
    dialogue = _plain(Async.dialogue)
    recall = _plain(Async.recall)
    limit = _plain(Async.limit)
    set_history = _plain(Async.set_history)

    def fork(self, at: int | str | None = None, name: str = "") -> Session:
        """As `lamina.sessions.Session.fork`."""
        return Session(self.portal.call(partial(self.session.fork, at, name)), self.portal)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not isinstance(getattr(Async, name, None), property):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.session, name)
