"""`wrap`: a client of an official SDK that fits every request before it is sent.

    client = lamina.wrap(Anthropic(), store="chats.db")
    client.messages.create(model=..., max_tokens=..., messages=history)

A request is fitted with the ledger of the conversation that it continues. `conversation(client, "support")`
names the conversation, so that it need not be recognised by its content. If the API refuses a request as too
long all the same, the request is cut deeper and sent once more. From the first cut on the model has the
recall tool, which is answered inside the call. Everything else is the client's own: answers, streams, errors
and attributes.

The SDK sends with an HTTP client of its own. `wrap` puts a relay in front of that one's transport, which is
asleep but for the calls of wrapped clients (`lamina.wrapped.sdk_calls`): the client that was given stays what
it was. Clients are recognised by their shape, so no SDK is imported here. Endpoints that lamina has no
dialect for are passed on untouched.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from os import PathLike
from typing import Any, Self, TypeVar, cast

from lamina.conversations.events import CutEvent, Listeners, MissEvent, RepairEvent
from lamina.core.ledger import load_ledger
from lamina.core.values import Budget, Ledger
from lamina.errors import BadInput
from lamina.fitting.fitted import Fitted
from lamina.fitting.policy import Policy, choose_policy
from lamina.stores.port import Store
from lamina.wrapped.in_process import InProcessRelay
from lamina.wrapped.sdk_calls import ClientCalls, relay_calls
from lamina.wrapped.sdk_transports import put_in_front

C = TypeVar("C")


def wrap(
    client: C,
    *,
    policy: Policy | None = None,
    budget: Budget | int | None = None,
    store: Store | str | PathLike[str] | None = None,
    key: Any = None,
    on_cut: Callable[[CutEvent], Any] | None = None,
    on_repair: Callable[[RepairEvent], Any] | None = None,
    on_miss: Callable[[MissEvent], Any] | None = None,
) -> C:
    """The client with every request fitted. It has the type of the client that was given.

    `policy` says how requests are fitted, and `budget` replaces that of the policy. Unless the policy turns
    recall off, the model has a tool for what was lowered, and its calls are answered here.
    With a `store` (an address such as "chats.db" or "postgresql://...") conversations go on after a restart;
    with a `key` it is sealed. `on_cut`, `on_repair` and `on_miss` are called with what happened; each is a
    line of the logger `lamina`, too.
    """
    if not any(_has_endpoint(client, path) for path in _ENDPOINTS):
        raise BadInput(
            f"{type(client).__name__} is not a client that lamina knows",
            place="wrap",
            hint="pass a client of an official SDK; or call fit_request before your own call",
        )
    chosen_policy = choose_policy(policy, budget=budget, place="wrap")
    listeners = Listeners(on_cut=on_cut, on_repair=on_repair, on_miss=on_miss)
    relay = InProcessRelay(chosen_policy, store=store, key=key, listeners=listeners)
    put_in_front(client)
    return cast("C", Wrapped(client, ClientCalls(relay, sign=getattr(client, "_prepare_request", None))))


def conversation(client: C, name: str, *, ledger: Ledger | None = None) -> C:
    """The same wrapped client for one named conversation.

    Give `ledger` to continue a conversation of an earlier process, if the client has no store.
    """
    return cast("C", _unwrap(client).conversation(name, ledger=ledger))


def last_fitted(client: Any) -> Fitted | None:
    """The last request of a wrapped client that was answered, as `Wrapped.fitted` says."""
    return _unwrap(client).fitted


def fitted_of(client: Any, answer: Any) -> Fitted:
    """The request that an answer or stream of a wrapped client belongs to."""
    return _unwrap(client).fitted_of(answer)


def _unwrap(client: Any) -> Wrapped:
    if type(client) is not Wrapped:
        hint = "pass what lamina.wrap returned"
        raise BadInput(f"{type(client).__name__} is not a wrapped client", place="client", hint=hint)
    return client


class Wrapped:
    """A client of an SDK, or a part of one (`client.messages`), whose endpoints fit their requests.

    A type checker takes it for the client itself. So `conversation`, `last_fitted` and `fitted_of` are
    functions of this module, too: `conversation(client, "support-42")`.
    """

    def __init__(self, inner: Any, calls: ClientCalls, path: str = "") -> None:
        vars(self).update(_inner=inner, _calls=calls, _path=path)

    def conversation(self, name: str, *, ledger: Ledger | None = None) -> Wrapped:
        """The same client for one named conversation.

        Give `ledger` to continue a conversation of an earlier process, if the client has no store.
        """
        if not name or type(name) is not str:
            raise BadInput(f"the name is {name!r:.100}", place="conversation", hint="give a text")
        if ledger is not None:
            self._calls.relay.begin_with(name, load_ledger(ledger))
        return Wrapped(self._inner, self._calls.with_name(name), self._path)

    @property
    def fitted(self) -> Fitted | None:
        """The last request that was answered, as `fit_request` returned it: ledger, account, `recall`.

        With a named conversation, it is the last one of that conversation. A client without a name has it
        only while all its calls belong to one conversation. After that it raises BadInput, since the last
        call may be somebody else's.
        """
        last: Fitted | None = self._calls.last_fitted()
        return last

    def fitted_of(self, answer: Any) -> Fitted:
        """The request that this answer or stream belongs to, as `fit_request` returned it."""
        fitted: Fitted | None = self._calls.fitted_of(answer)
        if fitted is None:
            raise BadInput(
                f"{type(answer).__name__} is no answer of this client",
                place="fitted_of",
                hint="pass the object that the client returned; or use client.conversation(name).fitted",
            )
        return fitted

    def __getattr__(self, name: str) -> Any:
        """The attribute of the client. An endpoint that takes requests fits them first.

        `client.messages` is wrapped, since `client.messages.create` is an endpoint. A copy of the client
        is wrapped too, and shares the conversations.
        """
        if name.startswith("__"):  # `copy` asks an object that has no attributes yet
            raise AttributeError(name)
        attribute = getattr(self._inner, name)
        path = f"{self._path}.{name}".lstrip(".")
        if path in _ENDPOINTS and callable(attribute):
            return relay_calls(attribute, self._calls, path)
        if path in ("copy", "with_options"):
            return partial(self._copy, attribute)
        if path in _ENDPOINT_PARENTS:
            return Wrapped(attribute, self._calls, path)
        return attribute

    def _copy(self, copy_client: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        copied = copy_client(*arguments, **options)
        if isinstance(copied, type(self._inner)):
            put_in_front(copied)
            return Wrapped(copied, self._calls)
        return copied  # `copy` of an Ollama client copies a model

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._inner, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._inner, name)

    def __repr__(self) -> str:
        return f"lamina.wrap({self._inner!r})"

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(self, *error: object) -> Any:
        return self._inner.__exit__(*error)

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> Any:
        return await self._inner.__aexit__(*error)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """Frameworks ask what a client is an instance of."""
        return type(self._inner)


def _has_endpoint(client: Any, path: str) -> bool:
    for name in path.split("."):
        client = getattr(client, name, None)
    return callable(client)


_RESOURCES = (
    "messages",
    "chat.completions",
    "responses",
    # Last: a client of OpenAI loads hundreds of modules when it is asked for `beta`.
    "beta.messages",
    "beta.chat.completions",
)
_METHODS = (
    "models.generate_content",
    "models.generate_content_stream",
    "aio.models.generate_content",
    "aio.models.generate_content_stream",
    "chat",
    "converse",
    "converse_stream",
)


def _list_endpoints() -> tuple[str, ...]:
    """The path of each endpoint, such as `messages.with_raw_response.create`."""
    responses = ("", ".with_raw_response", ".with_streaming_response")
    methods = ("create", "parse", "stream")
    return (
        *_METHODS,
        *(
            f"{resource}{response}.{method}"
            for resource, response, method in product(_RESOURCES, responses, methods)
        ),
    )


def _list_parents(endpoints: tuple[str, ...]) -> frozenset[str]:
    """The paths on the way to an endpoint, such as `messages.with_raw_response`."""
    parents: set[str] = set()
    for path in endpoints:
        names = path.split(".")
        for length in range(1, len(names)):
            parents.add(".".join(names[:length]))
    return frozenset(parents)


_ENDPOINTS = _list_endpoints()
_ENDPOINT_PARENTS = _list_parents(_ENDPOINTS)
