"""`wrap`: a client of an official SDK that fits every request before it is sent.

    client = lamina.wrap(Anthropic(), store="chats.db")
    client.messages.create(model=..., max_tokens=..., messages=history)

A request is fitted with the ledger of the conversation that it continues. `conversation(client, "support")`
names the conversation, so that it need not be recognised by its content. If the API refuses a request as too
long all the same, the request is cut deeper and sent once more. From the first cut on the model has the
recall tool, which is answered inside the call. Everything else is the client's own: answers, streams, errors
and attributes.

Clients are recognised by their shape, so no SDK is imported here. Endpoints that lamina has no dialect for
are passed on untouched. `lamina.wrapped.sdk_calls` has the call itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from os import PathLike
from typing import Any, Self, TypeVar, cast

from lamina.conversations.conversations import Conversations
from lamina.conversations.events import CutEvent, Listeners, MissEvent, RepairEvent
from lamina.conversations.pending_call import PendingCall
from lamina.core.ledger import load_ledger
from lamina.core.values import Budget, Ledger
from lamina.dialects import DIALECTS
from lamina.dialects.port import Dialect
from lamina.errors import BadInput
from lamina.fitting.fitted import Fitted
from lamina.fitting.policy import Keep, Policy, choose_policy
from lamina.stores.port import Store
from lamina.wrapped.sdk_calls import fit_calls

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
    conversations = Conversations(
        chosen_policy,
        listeners=Listeners(on_cut=on_cut, on_repair=on_repair, on_miss=on_miss),
        store=_open_store(store, key, chosen_policy.keep),
    )
    return cast("C", Wrapped(client, conversations))


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


def _open_store(store: Store | str | PathLike[str] | None, key: Any, keep: Keep) -> Any:
    """The store of the conversations. It is opened when it is first used."""
    if store is None:
        if key is not None:
            raise BadInput("a key without a store", place="wrap", hint='give store="chats.db", too')
        return None
    from lamina.conversations.conversation_store import ConversationStore  # noqa: PLC0415 - few clients have one

    return ConversationStore(store, key=key, keep=keep)


class Wrapped:
    """A client of an SDK, or a part of one (`client.messages`), whose endpoints fit their requests.

    A type checker takes it for the client itself. So `conversation`, `last_fitted` and `fitted_of` are
    functions of this module, too: `conversation(client, "support-42")`.
    """

    def __init__(self, inner: Any, conversations: Conversations, path: str = "") -> None:
        vars(self).update(_inner=inner, _conversations=conversations, _path=path)

    def conversation(self, name: str, *, ledger: Ledger | None = None) -> Wrapped:
        """The same client for one named conversation.

        Give `ledger` to continue a conversation of an earlier process, if the client has no store.
        """
        if not name or type(name) is not str:
            raise BadInput(f"the name is {name!r:.100}", place="conversation", hint="give a text")
        own_ledger = None if ledger is None else load_ledger(ledger)
        return Wrapped(self._inner, self._conversations.with_name(name, ledger=own_ledger), self._path)

    @property
    def fitted(self) -> Fitted | None:
        """The last request that was answered, as `fit_request` returned it: ledger, account, `recall`.

        With a named conversation, it is the last one of that conversation. A client without a name has it
        only while all its calls belong to one conversation. After that it raises BadInput, since the last
        call may be somebody else's.
        """
        last: Fitted | None = self._conversations.last_fitted()
        return last

    def fitted_of(self, answer: Any) -> Fitted:
        """The request that this answer or stream belongs to, as `fit_request` returned it."""
        call: PendingCall | None = self._conversations.answers.call_of(answer)
        if call is None:
            raise BadInput(
                f"{type(answer).__name__} is no answer of this client",
                place="fitted_of",
                hint="pass the object that the client returned; or use client.conversation(name).fitted",
            )
        return call.fitted

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
            return fit_calls(attribute, self._conversations, _ENDPOINTS[path], path)
        if path in ("copy", "with_options"):
            return partial(self._copy, attribute)
        if path in _ENDPOINT_PARENTS:
            return Wrapped(attribute, self._conversations, path)
        return attribute

    def _copy(self, copy_client: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        copied = copy_client(*arguments, **options)
        if isinstance(copied, type(self._inner)):
            return Wrapped(copied, self._conversations)
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
    ("messages", "anthropic"),
    ("chat.completions", "openai_chat"),
    ("responses", "openai_responses"),
    # Last: a client of OpenAI loads hundreds of modules when it is asked for `beta`.
    ("beta.messages", "anthropic"),
    ("beta.chat.completions", "openai_chat"),
)
_METHODS = (
    ("models.generate_content", "gemini"),
    ("models.generate_content_stream", "gemini"),
    ("aio.models.generate_content", "gemini"),
    ("aio.models.generate_content_stream", "gemini"),
    ("chat", "ollama"),
    ("converse", "bedrock_converse"),
    ("converse_stream", "bedrock_converse"),
)


def _list_endpoints() -> dict[str, Dialect]:
    """The dialect of each endpoint by its path, such as `messages.with_raw_response.create`."""
    endpoints = {path: DIALECTS[name] for path, name in _METHODS}
    responses = ("", ".with_raw_response", ".with_streaming_response")
    methods = ("create", "parse", "stream")
    for (resource, name), response, method in product(_RESOURCES, responses, methods):
        endpoints[f"{resource}{response}.{method}"] = DIALECTS[name]
    return endpoints


def _list_parents(endpoints: dict[str, Dialect]) -> frozenset[str]:
    """The paths on the way to an endpoint, such as `messages.with_raw_response`."""
    parents: set[str] = set()
    for path in endpoints:
        names = path.split(".")
        for length in range(1, len(names)):
            parents.add(".".join(names[:length]))
    return frozenset(parents)


_ENDPOINTS = _list_endpoints()
_ENDPOINT_PARENTS = _list_parents(_ENDPOINTS)
