"""A client of the OpenAI or Anthropic SDK that fits every request before it is sent.

    client = lamina.wrap(Anthropic())
    client.messages.create(model=..., max_tokens=..., messages=history)

The wrapped client keeps the ledger of each conversation, told apart by how they begin, or by name with
`client.conversation("support-42")`. When a provider reports an overflow all the same, one deeper cut is
made and the call is sent once more. Everything else goes through to the client untouched; no SDK is
imported here.
"""

from __future__ import annotations

import inspect
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from lamina.core.hashing import digest
from lamina.core.tokens import Counter
from lamina.core.values import Budget, Ledger
from lamina.dialects import ANTHROPIC, OPENAI_CHAT
from lamina.dialects.port import Dialect
from lamina.errors import BadInput
from lamina.models import model
from lamina.request import Fitted, RequestMemo, fit_request

CONVERSATIONS = 256
"""How many conversations a wrapped client remembers; the one not used for longest is forgotten first."""

DEEPER = 0.75
"""Of the window believed before, what is used after an overflow that does not name the limit."""

OVERFLOW = re.compile(
    r"(?:context|prompt|input|token|request)[^.]{0,80}(?:overflow|maximum|too long|too large|limit|exceed)"
    r"|(?:exceed|too long|too large)[^.]{0,80}(?:context|token|window)",
    re.IGNORECASE,
)
LIMIT = re.compile(r"(?:maximum(?: context length)?(?: is| of)?|n_ctx[\"']?\s*[:=]|context size \()\s*(\d{3,8})", re.IGNORECASE)


class Conversation(msgspec.Struct, kw_only=True):
    """What is kept between two calls of one conversation."""

    ledger: Ledger = Ledger()
    memo: Any = None
    window: int | None = None


def wrap(client: Any, *, budget: Budget | None = None, counter: Counter | None = None) -> Any:
    """The client, with every request fitted. `budget` and `counter` are those of `fit_request`."""
    paths = [path for path in _ENDPOINTS if _there(client, path)]
    if not paths:
        raise BadInput(
            f"{type(client).__name__} is not a client that lamina knows",
            place="wrap",
            hint="pass an OpenAI or Anthropic client, sync or async; or call fit_request before your own call",
        )
    return Wrapped(client, Fitting(budget, counter))


class Fitting:
    """Fits requests, with a ledger for each conversation."""

    def __init__(self, budget: Budget | None, counter: Counter | None, name: str | None = None) -> None:
        self.budget, self.counter, self.name = budget, counter, name
        self.kept: OrderedDict[str, Conversation] = OrderedDict()

    def named(self, name: str) -> Fitting:
        other = Fitting(self.budget, self.counter, name)
        other.kept = self.kept
        return other

    def fit(self, request: Mapping[str, Any], dialect: Dialect, *, window: int | None = None) -> tuple[Fitted, Conversation]:
        """The request as it can be sent, and the conversation that its ledger belongs to."""
        known = self._conversation(request)
        if window is not None:
            known.window = window
        budget = self.budget or Budget(window=known.window or model(str(request.get("model", ""))).window)
        if known.window is not None and known.window < budget.window:
            budget = msgspec.structs.replace(budget, window=known.window)
        fitted = fit_request(
            request, dialect=dialect, budget=budget, ledger=known.ledger, counter=self.counter, memo=known.memo
        )
        return fitted, known

    def deeper(self, error: Exception, request: Mapping[str, Any], dialect: Dialect) -> Fitted | None:
        """The request cut once more after an overflow; None if the error was something else."""
        if getattr(error, "status_code", None) not in (400, 413) or not OVERFLOW.search(str(error)):
            return None
        found = LIMIT.search(str(error))
        before = self.budget.window if self.budget else model(str(request.get("model", ""))).window
        window = int(found[1]) if found and int(found[1]) < before else int(before * DEEPER)
        fitted, _ = self.fit(request, dialect, window=window)
        return fitted

    def _conversation(self, request: Mapping[str, Any]) -> Conversation:
        name = self.name or _beginning(request)
        known = self.kept.setdefault(name, Conversation(memo=RequestMemo()))
        self.kept.move_to_end(name)
        while len(self.kept) > CONVERSATIONS:
            self.kept.popitem(last=False)
        return known


class Wrapped:
    """Stands for a part of a client; attributes that are not an endpoint are the client's own."""

    def __init__(self, inner: Any, fitting: Fitting, path: str = "") -> None:
        self._inner, self._fitting, self._path = inner, fitting, path

    def __getattr__(self, name: str) -> Any:
        path = f"{self._path}.{name}" if self._path else name
        inner = getattr(self._inner, name)
        dialect = _ENDPOINTS.get(path)
        if dialect is not None:
            return _fitted(inner, self._fitting, dialect)
        if any(known.startswith(f"{path}.") for known in _ENDPOINTS):
            return Wrapped(inner, self._fitting, path)
        return inner

    def conversation(self, name: str) -> Wrapped:
        """The same client, for one conversation by name."""
        return Wrapped(self._inner, self._fitting.named(name), self._path)

    def __repr__(self) -> str:
        return f"lamina.wrap({self._inner!r})"


def _fitted(send: Callable[..., Any], fitting: Fitting, dialect: Dialect) -> Callable[..., Any]:
    """`send`, with its request fitted before and one deeper cut after an overflow."""

    def sync(**request: Any) -> Any:
        fitted, known = fitting.fit(request, dialect)
        try:
            answer = send(**fitted.request)
        except Exception as error:
            again = fitting.deeper(error, request, dialect)
            if again is None:
                raise
            fitted, answer = again, send(**again.request)
        known.ledger = fitted.ledger
        return answer

    async def later(**request: Any) -> Any:
        fitted, known = fitting.fit(request, dialect)
        try:
            answer = await send(**fitted.request)
        except Exception as error:
            again = fitting.deeper(error, request, dialect)
            if again is None:
                raise
            fitted, answer = again, await send(**again.request)
        known.ledger = fitted.ledger
        return answer

    return later if inspect.iscoroutinefunction(inspect.unwrap(send)) else sync


def _beginning(request: Mapping[str, Any]) -> str:
    """What tells conversations apart: the system text and the first message."""
    messages = request.get("messages")
    first = messages[:1] if isinstance(messages, list) else messages
    plain = msgspec.to_builtins((request.get("system"), first), enc_hook=_dumped)
    return digest(plain)


def _dumped(value: Any) -> Any:
    """An object of the SDK's as plain values."""
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else repr(value)


def _there(client: Any, path: str) -> bool:
    for name in path.split("."):
        client = getattr(client, name, None)
    return callable(client)


_ENDPOINTS: dict[str, Dialect] = {
    "messages.create": ANTHROPIC,
    "messages.stream": ANTHROPIC,
    "chat.completions.create": OPENAI_CHAT,
    "chat.completions.stream": OPENAI_CHAT,
}
