"""The conversations that requests belong to: what is remembered from one call to the next.

A conversation is recognised by its content: `Conversations.find` compares a new request with those of the
conversations that it remembers. If its caller names it, only conversations of that name and user are
compared, and less has to be the same. `pending_call` takes one request from here to the API and back.
Nothing is sent here.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from threading import Lock
from time import monotonic, time
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ReferenceType, ref

import msgspec

from lamina.caches.lifetimes import FOR_EVER
from lamina.conversations.conversation_store import Conversation, LastRequest, make_uid
from lamina.conversations.events import Listeners
from lamina.conversations.recall_loop import PREVIOUS_ANSWER, continue_answer
from lamina.conversations.recognise import (
    Recognised,
    add_user,
    choose_state,
    name_left,
    part_from_hidden,
    read_user,
    recognise,
)
from lamina.conversations.record_writer import RecordWriter
from lamina.conversations.request_digests import RequestDigests, count_shared_links, digest_log
from lamina.conversations.shelf import forget_lost_text
from lamina.conversations.store import ConversationState
from lamina.core.values import Digest, Ledger
from lamina.dialects.memos import ParseMemo
from lamina.dialects.port import Dialect
from lamina.dialects.usage import Usage
from lamina.errors import BadInput
from lamina.fitting.fitted import Fitted
from lamina.fitting.policy import DEFAULT_POLICY, Policy
from lamina.fitting.recalls import read_turns
from lamina.fitting.request import RequestMemo

if TYPE_CHECKING:
    from lamina.conversations.conversation_store import ConversationStore

PAUSES = 200
"""How many pauses between two requests are remembered."""

IDS = 1_024
"""How many ids of answers that stand for a later answer are remembered."""

CONVERSATIONS = 256
"""How many conversations are remembered. The one that was not used for longest is forgotten first."""

SIMILAR_CONVERSATIONS = 8
"""How many conversations with the same first turn are compared to find the most useful memo."""

SEVERAL = 2
"""How many unnamed conversations are enough to know that there is more than one."""

LEAST_SAME = 2
"""So many messages of an earlier request, and half of all it had, make it likely that a later one goes on."""


class KeptAnswer(NamedTuple):
    """The model's last answer to a call, which its API keeps, and the recalled texts that it waits for."""

    last_id: str
    results: tuple[Any, ...] = ()


class FoundConversation(NamedTuple):
    """The conversation of a request, and the key to remember it by.

    `before` is what is remembered under that key, and `parse_memo` what the request was parsed into.
    """

    key: int
    conversation: Conversation
    parse_memo: ParseMemo
    before: Conversation | None = None


class Conversations:
    """All conversations of one client. Any thread may call its methods.

    The lock guards what is remembered, for as long as it takes to look or to note something. Nobody holds it
    while a request is parsed or fitted, or while the store is read or written.

    `door` is what the record calls this client. `policy` says how requests are fitted. With its `recall` on
    "auto", the model has the recall tool. Conversations are remembered in `by_key`. `unnamed` has the first
    two that have no name, which is enough to know whether there is more than one. Those of this `name` begin
    with the `ledger` that the caller gave. `without_switch` are models whose API refused the switch that
    drops unbound thinking. `pauses` are the last ones between two requests, in seconds. `living` has the
    request for which the client left a conversation, until it goes on with that one.
    """

    def __init__(
        self,
        policy: Policy = DEFAULT_POLICY,
        *,
        door: str = "wrap",
        listeners: Listeners | None = None,
        store: ConversationStore | None = None,
    ) -> None:
        self.policy = policy
        self.door = door
        self.without_switch: set[str] = set()
        self.pauses: deque[float] = deque(maxlen=PAUSES)
        self.listeners = listeners or Listeners()
        self.store = store
        self.name = ""
        self.ledger = Ledger()
        self.by_key: OrderedDict[int, Conversation] = OrderedDict()
        self.living: dict[str, RequestDigests] = {}
        self.numbers = count()
        self.unnamed: set[int] = set()
        self.answers = AnswerCalls()
        self.kept_answers: OrderedDict[str, KeptAnswer] = OrderedDict()
        self._lock = Lock()

    def with_name(self, name: str, *, ledger: Ledger | None = None) -> Conversations:
        """A view of the same conversations whose calls all belong to those with this name.

        With a `ledger` nothing else is remembered of them.
        """
        view = Conversations()
        vars(view).update(vars(self), name=name)
        if ledger is not None:
            view.ledger = ledger
            with self._lock:
                for key in [key for key, each in self.by_key.items() if each.name == name]:
                    del self.by_key[key]
        return view

    def remember_id(self, shown_id: str, answer: KeptAnswer) -> None:
        """Remember which answer is meant by an id that the client saw: the last one of several."""
        with self._lock:
            self.kept_answers[shown_id] = answer
            while len(self.kept_answers) > IDS:
                self.kept_answers.popitem(last=False)

    def continue_last(self, request: dict[str, Any]) -> dict[str, Any]:
        """The request so that it continues the last answer, if the client names an earlier one."""
        shown_id = request.get(PREVIOUS_ANSWER)
        if not isinstance(shown_id, str) or not shown_id:
            return request
        answer = self.kept_answers.get(shown_id)
        if answer is not None:
            return continue_answer(request, answer.last_id, answer.results)
        exchange = None
        if self.store is not None:
            exchange = self.store.load_continued(shown_id)
        if exchange is None:
            return request
        return continue_answer(request, exchange.last_id, exchange.results)

    def save_answer(self, shown_id: str, uid: str) -> None:
        """Store to which conversation an answer belongs, before its conversation is stored."""
        if self.store is not None:
            self.store.save_answer(shown_id, uid)

    def note_pause(self, last_request: LastRequest | None) -> None:
        """Note how long the caller paused after the last request of a conversation."""
        pause = FOR_EVER
        if last_request is not None:
            pause = monotonic() - last_request.sent_at
        with self._lock:
            self.pauses.append(pause)

    def list_pauses(self) -> list[float]:
        with self._lock:
            return list(self.pauses)

    def last_fitted(self) -> Fitted | None:
        """The request that was answered last, under this view's name or in the only unnamed conversation.

        With several unnamed conversations it raises BadInput, since the last call may be anybody's.
        """
        if self.name:
            fitted: Fitted | None = None
            for _, conversation in self._list_remembered(self.name):
                fitted = conversation.fitted or fitted
            return fitted
        if len(self.unnamed) > 1:
            raise BadInput(
                "this client has had calls of more than one conversation",
                place="fitted",
                hint="use client.fitted_of(answer), or client.conversation(name).fitted",
            )
        for key in self.unnamed:
            if key in self.by_key:
                only: Fitted | None = self.by_key[key].fitted
                return only
        return None

    def find(self, request: Mapping[str, Any], dialect: Dialect) -> FoundConversation:
        """The conversation of a request.

        It is one with the name of this view. Without a name it is the conversation that the request
        continues, or a fork of one that it shares answers with, or a new one.
        """
        if self.name:
            return self._find_named(request, dialect)
        turns = read_turns(request)
        # A memo and digests of another conversation save time, and change nothing.
        similar = self._find_similar(turns, dialect) or Conversation()
        memo = _branch_memo(similar.memo)
        log = dialect.wire.parse(request, memo=memo.parse).log
        digests = digest_log(log, similar.digests)
        user = read_user(request)
        new = self._begin_state(dialect=dialect.name, group=user)
        if self.store is not None:
            self._take_stored(self.store.load(user, dialect.name, digests))
        unnamed = self._list_unnamed(dialect.name)
        users_own = {key: conversation for key, conversation in unnamed if conversation.state.group == user}
        recognised = recognise(digests, [(key, each.digests) for key, each in users_own.items()])
        nearest = None
        state = new
        if recognised.nearest is not None:
            nearest = users_own[recognised.nearest]
            recognised = part_from_hidden(recognised, nearest.state, digests)
            choose = partial(choose_state, request=request, log=log, digests=digests, dialect=dialect)
            state = choose(recognised, new, nearest.state, parent=nearest.uid)
        if nearest is not None and recognised.nearest is not None and recognised.relation == "continues":
            self.living.pop(nearest.uid, None)
            continued = msgspec.structs.replace(nearest, state=state, digests=digests, turns=turns, left=())
            if nearest is not similar:
                # It was parsed beside messages of another conversation, and those of this one may differ.
                memo.parse.keeps_equality = False
            return FoundConversation(recognised.nearest, continued, memo.parse, nearest)

        others = list(users_own.values())
        left = name_left(digests, [(each.uid, each.state, each.digests) for each in others])
        if nearest is None:
            last_request = _find_likeliest(digests, others)
        else:
            last_request = nearest.last_request
            # Not what was read for cuts and reminders: another thread may be reading for the nearest one now.
            memo.build.checkpoint = nearest.memo.build.checkpoint
        conversation = Conversation(
            uid=make_uid(self.door),
            state=msgspec.structs.replace(state, left=left),
            digests=digests,
            turns=turns,
            memo=memo,
            last_request=last_request,
            left=left,
        )
        return FoundConversation(next(self.numbers), conversation, memo.parse)

    def _begin_state(self, **fields: Any) -> ConversationState:
        return ConversationState(door=self.door, began=int(time()), **fields)

    def remember(
        self, key: int, conversation: Conversation, *, before: Conversation | None
    ) -> tuple[int, Conversation]:
        """Remember a conversation. Returns the key that it is remembered by, and the conversation.

        `before` is what the call started from. If another call continued that conversation meanwhile, there
        are two of them now. Without a name, both are remembered, and this one is a fork. With a name only
        one can be: the one that has been cut more often.
        """
        with self._lock:
            current = self.by_key.get(key)
            if current is not None and current is not before:
                if not conversation.name:
                    key = next(self.numbers)
                    conversation = msgspec.structs.replace(
                        conversation.with_state(parent=conversation.uid),
                        uid=make_uid(self.door),
                        record=RecordWriter(),
                    )
                elif len(current.state.ledger.cuts) > len(conversation.state.ledger.cuts):
                    return key, conversation
            if not conversation.name and len(self.unnamed) < SEVERAL:
                self.unnamed.add(key)
            self.by_key[key] = conversation
            self.by_key.move_to_end(key)
            while len(self.by_key) > CONVERSATIONS:
                _, forgotten = self.by_key.popitem(last=False)
                self.living.pop(forgotten.uid, None)
            return key, conversation

    def is_last_answered(self, key: int, fitted: Fitted) -> bool:
        """Whether no later call has continued the conversation since this request of it was answered."""
        conversation = self.by_key.get(key)
        return conversation is not None and conversation.fitted is fitted

    def replace_usage(
        self, key: int, fitted: Fitted, *, usage: Usage, last_request: LastRequest
    ) -> Conversation | None:
        """Note what was counted for a request that is still the last one of its conversation; else None."""
        with self._lock:
            conversation = self.by_key.get(key)
            if conversation is None or conversation.fitted is not fitted:
                return None
            updated = conversation.with_state(usage=usage)
            updated = msgspec.structs.replace(updated, last_request=last_request)
            self.by_key[key] = updated
            return updated

    def save(self, key: int, *, left: Sequence[str] = ()) -> None:
        """Store a conversation, if there is a store. A failure is logged: the answer is the caller's.

        It is found again by its beginning, and by its name if it has one. Branches that the client has `left`
        for it lose what it has lost.
        """
        conversation = self._find_storable(key)
        if self.store is None or conversation is None:
            return
        self.store.save(conversation, find_latest=partial(self._find_storable, key))
        living = self.living.get(conversation.uid)
        if living is not None:
            self.store.forget_lost_text(conversation.uid, living)
        for uid in left:
            if uid != conversation.uid:
                self.living[uid] = conversation.digests
            self.store.forget_lost_text(uid, conversation.digests)

    def _find_storable(self, key: int) -> Conversation | None:
        """A conversation as it may be stored: one that the client has left has what the living one still has.

        Its last answer may end only after that, and would bring back what the client has deleted.
        """
        conversation = self.by_key.get(key)
        if conversation is None or conversation.uid not in self.living:
            return conversation
        state = forget_lost_text(conversation.state, self.living[conversation.uid])
        return msgspec.structs.replace(conversation, state=state)

    def save_failed(self, key: int, conversation: Conversation) -> None:
        """Store the record of a call that has no answer, if there is a store.

        A conversation that begins with it is remembered for that: if the client tries again, it goes on.
        """
        if self.store is None:
            return
        if key not in self.by_key:
            self.remember(key, conversation, before=None)
        self.save(key, left=conversation.left)

    def _find_named(self, request: Mapping[str, Any], dialect: Dialect) -> FoundConversation:
        """The conversation with the name of this view, for the user and the system text of the request.

        A name that several of them share is no reason to mix them up. Of one user's conversations it is the
        one with most in common, and of equals the last. An edit of its messages makes no fork. One client may
        use two dialects. A memo is valid for one of them only, and recalls are in the words of one.
        """
        group = add_user(f"name:{self.name}", read_user(request))
        if self.store is not None:
            self._take_stored(self.store.load_named(group, dialect.name), name=self.name)
        named = [(key, each) for key, each in self._list_remembered(self.name) if each.state.group == group]
        similar = Conversation()
        if named and named[-1][1].state.dialect == dialect.name:
            similar = named[-1][1]
        memo = _branch_memo(similar.memo)
        log = dialect.wire.parse(request, memo=memo.parse).log
        digests = digest_log(log, similar.digests)
        recognised = _recognise_named(digests, named)
        new = self._begin_state(dialect=dialect.name, group=group, ledger=self.ledger)
        nearest = None
        state = new
        if recognised.nearest is not None:
            nearest = dict(named)[recognised.nearest]
            choose = partial(choose_state, request=request, log=log, digests=digests, dialect=dialect)
            state = choose(recognised, new, nearest.state, parent=nearest.uid)
        if recognised.nearest is None or nearest is None or recognised.relation == "forks":
            left = name_left(digests, [(each.uid, each.state, each.digests) for _, each in named])
            conversation = Conversation(
                uid=make_uid(self.door),
                name=self.name,
                state=msgspec.structs.replace(state, left=left),
                digests=digests,
                memo=memo,
                left=left,
            )
            return FoundConversation(next(self.numbers), conversation, memo.parse)

        self.living.pop(nearest.uid, None)
        if nearest is not similar:
            memo.parse.keeps_equality = False
        conversation = msgspec.structs.replace(nearest, state=state)
        if nearest.state.dialect != dialect.name:
            conversation = msgspec.structs.replace(
                conversation.with_state(exchanges=(), dialect=dialect.name),
                memo=RequestMemo(),
                spliced_memo=RequestMemo(),
                memo_lock=Lock(),
            )
        left = ()
        chain = nearest.digests.chain
        if count_shared_links(chain, digests.chain) < len(chain):  # it loses texts itself
            others = [(each.uid, each.state, each.digests) for _, each in named if each is not nearest]
            left = (nearest.uid, *name_left(digests, others))
        conversation = msgspec.structs.replace(conversation, digests=digests, left=left)
        return FoundConversation(recognised.nearest, conversation, memo.parse, nearest)

    def _take_stored(self, stored: list[Conversation], *, name: str = "") -> None:
        """Remember stored conversations that are new here, or that another process has continued.

        A stored conversation with fewer requests than ours is older, and is left alone. One that knows what
        the last of as many took is newer: a stream reports that at its end.
        """
        with self._lock:
            keys = {conversation.uid: known_key for known_key, conversation in self.by_key.items()}
            for conversation in stored:
                own_key = keys.get(conversation.uid)
                if own_key is None:
                    own_key = next(self.numbers)
                own = self.by_key.get(own_key)
                if own is None or _age(own.state) < _age(conversation.state):
                    self.by_key[own_key] = msgspec.structs.replace(conversation, name=name)

    def _find_similar(self, turns: tuple[Any, ...], dialect: Dialect) -> Conversation | None:
        """A conversation with many of the same turns, so that its memo saves parsing them again.

        This only saves time and decides nothing. The longest conversation whose last turn is in the request
        at the same index is best. If there is none, a few with the same first turn are compared.
        """
        continued: list[Conversation] = []
        begun_alike: list[Conversation] = []
        for _, conversation in reversed(self._list_unnamed(dialect.name)):
            earlier_turns = conversation.turns
            if not earlier_turns:
                continue
            if _has_same_turn(earlier_turns, turns, len(earlier_turns) - 1):
                continued.append(conversation)
            elif _has_same_turn(earlier_turns, turns, 0):
                begun_alike.append(conversation)
        if continued:
            return max(continued, key=lambda conversation: len(conversation.turns))
        return max(
            begun_alike[:SIMILAR_CONVERSATIONS],
            key=lambda conversation: _count_same_turns(conversation.turns, turns),
            default=None,
        )

    def _list_unnamed(self, dialect: str) -> list[tuple[int, Conversation]]:
        """The conversations that are recognised by their content alone. Named ones never are."""
        return [(key, each) for key, each in self._list_remembered("") if each.state.dialect == dialect]

    def _list_remembered(self, name: str) -> list[tuple[int, Conversation]]:
        """The conversations of a name, the one that was used last at the end."""
        with self._lock:
            return [(key, each) for key, each in self.by_key.items() if each.name == name]


class AnswerCalls:
    """Which call each answer belongs to, for as long as somebody holds the answer."""

    def __init__(self) -> None:
        self._calls: dict[int, tuple[ReferenceType[Any], Any]] = {}

    def remember(self, answer: Any, call: Any) -> None:
        """Remember the call of an answer. Objects without weak references cannot be remembered."""
        key = id(answer)
        try:
            pointer = ref(answer, lambda _: self._calls.pop(key, None))
        except TypeError:
            return
        self._calls[key] = (pointer, call)

    def call_of(self, answer: Any) -> Any:
        if id(answer) not in self._calls:
            return None
        pointer, call = self._calls[id(answer)]
        if pointer() is not answer:  # the id of a dead object was given to a new one
            return None
        return call


def _age(state: ConversationState) -> tuple[int, bool]:
    return state.requests, bool(state.usage)


def _recognise_named(digests: RequestDigests, named: Sequence[tuple[int, Conversation]]) -> Recognised[int]:
    """Which of one user's conversations under one name a request goes on with.

    An edit is the same conversation. Another system text is another one, unless an answer is shared.
    """
    nearest: tuple[bool, int, int] | None = None
    for order, (_, each) in enumerate(named):
        shared = count_shared_links(each.digests.chain, digests.chain)
        same_system = each.digests.system == digests.system
        if same_system or shared > digests.first_answer:
            nearest = max(nearest or (False, 0, 0), (same_system, shared, order))
    if nearest is None:
        return Recognised()
    key, conversation = named[nearest[2]]
    return part_from_hidden(Recognised("continues", key, nearest[1]), conversation.state, digests)


def _find_likeliest(digests: RequestDigests, others: Sequence[Conversation]) -> LastRequest | None:
    """The last request that a new conversation most likely goes on from; None if none is like it.

    A client that changes its first message each time, or drops its oldest ones, begins a conversation anew
    with each request. Its cache is lost each time, and whoever listens should hear why. Nothing else depends
    on this: the new conversation has no ledger of the other one.
    """
    messages = frozenset(digests.digests)
    answered = [conversation for conversation in reversed(others) if conversation.last_request]
    for conversation in answered[:SIMILAR_CONVERSATIONS]:
        earlier = conversation.digests.digests
        same = _count_shared(earlier, messages)
        if same >= LEAST_SAME and 2 * same >= len(earlier):
            return conversation.last_request
    return None


def _count_shared(digests: Iterable[Digest], messages: frozenset[Digest]) -> int:
    """How many of these digests are among those of another request's messages."""
    return sum(digest in messages for digest in digests)


def _has_same_turn(earlier_turns: tuple[Any, ...], turns: tuple[Any, ...], index: int) -> bool:
    """Whether both have the same turn at this index.

    Clients often pass the very object again, so that is compared first.
    """
    if index >= len(turns):
        return False
    try:
        return bool(earlier_turns[index] is turns[index] or earlier_turns[index] == turns[index])
    except Exception:  # noqa: BLE001 - a foreign object may do anything when compared
        return False


def _count_same_turns(earlier_turns: tuple[Any, ...], turns: tuple[Any, ...]) -> int:
    """How many turns at the start are the same in both."""
    index = 0
    while index < len(earlier_turns) and _has_same_turn(earlier_turns, turns, index):
        index += 1
    return index


def _branch_memo(memo: RequestMemo) -> RequestMemo:
    """A memo that starts with what this one remembers of parsing, and then goes its own way."""
    branch = RequestMemo()
    branch.parse.past = memo.parse.past
    branch.parse.basis = memo.parse.basis
    return branch
