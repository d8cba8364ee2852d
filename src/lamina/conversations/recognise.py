"""Which conversation a request continues, or forks: one answer for every door.

A wrapped client and the gateway remember the digests of the last request of each conversation. A new request
is compared with those that begin with the same words, up to the model's first answer. The one that it has
most in common with is nearest:

- It *continues* that conversation if it has all of its messages, in order. If not even an answer is among
  them, the system text must be the same too: a title call and the conversation itself may begin alike.
- It *forks* it if both share at least one answer and then part: it begins a conversation of its own with what
  the other one left out of the common part.
- Otherwise it is *new*.

An evaluation that runs again repeats an older conversation step by step: it continues its own last request.

A client that writes the time or a list of tasks into its system text sends the same conversation with another
head, which is a recorded cut and no fork. Another user may also look like that: the same greeting, the same
first answer, another system text. So a conversation that the request continues under the same system text is
nearer than any other. And from a conversation with another system text a request gets only what lamina made
of messages which it has itself. Calls that the client never saw stand on the system text too
(`recall_loop.RecallPlace`): under another one the request is a fork without them. Requests of two users, as
far as their clients name them (`read_user`), are never compared. A name that the client gives to its
conversation changes none of this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import chain, pairwise
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import msgspec

from lamina.conversations.recall_loop import RecallExchange, select_exchanges, splice_exchanges
from lamina.conversations.record import count_compactions
from lamina.conversations.request_digests import RequestDigests, count_shared_links
from lamina.conversations.store import ConversationState
from lamina.core.ledger import rewind
from lamina.core.recall import list_refs
from lamina.core.values import Digest, Ledger, Role, Segment
from lamina.dialects.port import Dialect

Name = TypeVar("Name")
"""What a door calls a conversation by."""

Relation = Literal["continues", "forks", "new"]


class Recognised(NamedTuple, Generic[Name]):
    """How a request stands to the nearest of the conversations; `nearest` is None if it is new.

    `shared` counts the segments that both have in common, without system text.
    """

    relation: Relation = "new"
    nearest: Name | None = None
    shared: int = 0


class _Nearness(NamedTuple):
    """The nearest conversation is the greatest; of equals, the one that comes last.

    What both share comes first: a short branch that ended long ago is contained in many requests, but the
    longer one that a client has rewound still has their prefix in a cache.
    """

    shared: int
    continues: bool
    same_system: bool
    length: int
    order: int


NAME = "name:"
"""Begins the id of a conversation that has a name."""

USER = "user:"
"""Begins the id of a group of conversations that have a user in common."""

SERVER_STATE = ("previous_response_id", "conversation")
"""Fields of the Responses API by which a request continues what only the server has."""

MOST_LEFT = 32
"""How many conversations that a client has left are remembered by the one that it goes on with."""

_LONGEST_USER = 200
"""Characters of a user's name that stand in an id. A longer name ends with its digest."""


def read_user(request: Mapping[str, Any]) -> str:
    """The end user that a request names, as the id of a group; "" if it names none.

    A request may name its user and its tenant: who shares only one of them is somebody else.
    """
    user_id = None
    match request.get("metadata"):
        case {"user_id": value}:
            user_id = value
    fields = (request.get("safety_identifier"), request.get("user"), user_id, request.get("cache_salt"))
    names = [field for field in fields if isinstance(field, str) and field]
    user = " ".join(dict.fromkeys(names))
    if len(user) > _LONGEST_USER:
        digest = blake2b(user.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        user = f"{user[: _LONGEST_USER - len(digest)]}{digest}"
    return user and f"{USER}{user}"


def add_user(group: str, user: str) -> str:
    """The id of a conversation that a client names, for one of its users: `name:support user:ada`."""
    return f"{group} {user}".rstrip(" ")


def is_named(group: str) -> bool:
    """Whether the client itself gave its conversation a name."""
    return group.startswith(NAME)


def list_ids(group: str) -> tuple[str, ...]:
    """The ids that a group is made of: `name:support` and `user:ada`."""
    name, separator, user = group.partition(f" {USER}")
    if not separator:
        return (name,)
    return (name, f"{USER}{user}")


def recognise(
    request: RequestDigests, conversations: Iterable[tuple[Name, RequestDigests]]
) -> Recognised[Name]:
    """Find the conversation of a request among those that are known, the newest of them last."""
    candidates = [
        (_measure_nearness(request, digests, order), name)
        for order, (name, digests) in enumerate(conversations)
        if digests.opening == request.opening
    ]
    if not candidates:
        return Recognised()
    under_same_system = [candidate for candidate in candidates if candidate[0].same_system]
    nearness, name = max(under_same_system or candidates, key=lambda candidate: candidate[0])
    is_repeated = nearness.shared == len(request.chain)
    if not nearness.continues:
        nearness, name = max(candidates, key=lambda candidate: candidate[0])
    if not nearness.continues or is_repeated:
        for other, other_name in candidates:
            if _is_repeated_run(request, other, nearness):
                nearness, name = other, other_name
    if nearness.continues:
        return Recognised("continues", name, nearness.shared)
    if nearness.shared > request.first_answer:
        return Recognised("forks", name, nearness.shared)
    return Recognised()


def recognise_named(
    request: RequestDigests, conversations: Iterable[tuple[Name, RequestDigests]]
) -> Recognised[Name]:
    """Find the conversation of a request among those of one user that have its name, the newest of them last.

    An edit is the same conversation. Another system text is another one, unless an answer is shared.
    """
    candidates: list[tuple[bool, int, int, Name]] = []
    for order, (name, digests) in enumerate(conversations):
        shared = count_shared_links(digests.chain, request.chain)
        same_system = digests.system == request.system
        if same_system or shared > request.first_answer:
            candidates.append((same_system, shared, order, name))
    if not candidates:
        return Recognised()
    _, shared, _, nearest = max(candidates, key=lambda candidate: candidate[:3])
    return Recognised("continues", nearest, shared)


def part_from_hidden(
    recognised: Recognised[Name], nearest: ConversationState, request: RequestDigests
) -> Recognised[Name]:
    """Let a request fork a conversation in which hidden calls stand on another system text.

    The request must not have them, and whoever goes on under the first system text keeps them.
    """
    systems = {exchange.place.system for exchange in nearest.exchanges}
    if recognised.relation == "continues" and systems - {request.system_digest}:
        return recognised._replace(relation="forks")
    return recognised


def _is_repeated_run(request: RequestDigests, other: _Nearness, longest: _Nearness) -> bool:
    """Whether a request is the next one of the `other` conversation, which repeats a longer one step by step.

    An evaluation that runs again gets the same answers. Each of its requests has most in common with the run
    before it, and would leave that as a fork of its own; its last one equals the last one of that run. A
    client that goes back from the longer conversation used that one last, or adds more than one answer to the
    other.
    """
    if not other.continues or other.order < longest.order:
        return False
    return _count_answers(request.segments[other.shared :], after_answer=False) == 1


def _count_answers(segments: Iterable[Segment], *, after_answer: bool) -> int:
    """How many answers begin in these segments. One answer may be several, such as a text and its calls."""
    is_answer = [segment.role is Role.ASSISTANT for segment in segments]
    return sum(now and not before for before, now in pairwise([after_answer, *is_answer]))


def _measure_nearness(request: RequestDigests, last_request: RequestDigests, order: int) -> _Nearness:
    shared = count_shared_links(request.chain, last_request.chain)
    same_system = last_request.system == request.system
    has_all = bool(last_request.chain) and shared == len(last_request.chain)
    has_answer = shared > request.first_answer
    return _Nearness(
        shared=shared,
        continues=has_all and (has_answer or same_system),
        same_system=same_system,
        length=len(last_request.chain),
        order=order,
    )


def find_left(living: RequestDigests, others: Iterable[tuple[Name, RequestDigests]]) -> list[Name]:
    """The conversations that a client has left for this request, since it changed or took back messages.

    What they store quotes messages that are gone (law 4), and nobody would ever delete that. So the request
    must share an answer with them, or most of their messages if it begins in another way. Two users may get
    the same first answer. Then both must have the same system text, or a second answer in common.
    """
    messages = frozenset(living.digests)
    return [name for name, other in others if _is_left(living, other, messages)]


def find_server_conversation(request: Mapping[str, Any], dialect: str) -> str:
    """The field by which a request continues what only the server has; "" if it has none.

    Such a request has the new items only. Nobody here knows how long the whole is, and a cut could take away
    what the server's part refers to. So it passes as it came.
    """
    if dialect != "openai_responses":
        return ""
    return next((field for field in SERVER_STATE if request.get(field)), "")


def name_left(
    living: RequestDigests, others: Iterable[tuple[str, ConversationState, RequestDigests]]
) -> tuple[str, ...]:
    """The names of conversations that are left for a request, and of those that were left for them before.

    The request may have nothing in common with the first of two branches that were left one after the other,
    so it remembers both. Of very many, it remembers the last. One that stores no words need not be named.
    """
    with_texts = [(name, state, digests) for name, state, digests in others if state.may_hold_text]
    left = find_left(living, [((name, state), digests) for name, state, digests in with_texts])
    earlier = chain.from_iterable(state.left for _, state in left)
    return tuple(dict.fromkeys((*earlier, *(name for name, _ in left))))[-MOST_LEFT:]


def _is_left(living: RequestDigests, other: RequestDigests, messages: frozenset[Digest]) -> bool:
    shared = count_shared_links(living.chain, other.chain)
    if shared == len(other.chain):  # the request goes on where this one ended
        return False
    if shared <= living.first_answer:
        same = sum(digest in messages for digest in other.digests)
        return 2 * same > len(other.digests)
    if other.system == living.system:
        return True
    # A greeting at the start answers nobody: an application greets all of its users alike.
    return _count_answers(living.segments[:shared], after_answer=True) > 1


def choose_state(
    recognised: Recognised[Any],
    new: ConversationState,
    nearest: ConversationState,
    *,
    parent: str,
    request: Mapping[str, Any],
    log: Sequence[Segment],
    digests: RequestDigests,
    dialect: Dialect,
) -> ConversationState:
    """The state that a request goes on with: that of the `nearest` conversation, or `new` as a fork of it.

    Both have only those recalls whose place is in the request. A fork has the ledger of the common part, and
    the windows that were learnt. `parent` is the name of the nearest one.
    """
    exchanges = select_exchanges(nearest.exchanges, digests)
    if recognised.relation == "continues":
        if len(exchanges) == len(nearest.exchanges):
            return nearest
        return msgspec.structs.replace(nearest, exchanges=exchanges)
    ledger = _rewind_to_fork(
        nearest.ledger,
        exchanges,
        request=request,
        log=log,
        digests=digests,
        shared=recognised.shared,
        dialect=dialect,
    )
    return msgspec.structs.replace(
        new,
        parent=parent,
        ledger=ledger,
        inherited_cuts=count_compactions(ledger),
        windows=nearest.windows,
        exchanges=exchanges,
    )


def _rewind_to_fork(
    ledger: Ledger,
    exchanges: Sequence[RecallExchange],
    *,
    request: Mapping[str, Any],
    log: Sequence[Segment],
    digests: RequestDigests,
    shared: int,
    dialect: Dialect,
) -> Ledger:
    """The ledger of a fork: what holds for the part that it shares with the other conversation.

    Recalls that the client never saw stand in that part too, so they are put back before it is measured.
    """
    if ledger == Ledger():
        return ledger
    spliced_log = log
    spliced = splice_exchanges(request, exchanges, digests)
    if spliced is not request:
        spliced_log = dialect.wire.parse(spliced).log
    length = len(digests.system) + shared + len(spliced_log) - len(log)
    shared_refs = [ref for ref, _ in list_refs(spliced_log)][:length]
    return rewind(ledger, shared_refs)
