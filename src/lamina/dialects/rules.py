"""Reads each message of a request once, and applies the rules of its API to what was read.

A format reads a message into items, its calls, results and other blocks, and states what its API demands.
What several APIs demand is one rule here, which looks at the format. What one API alone demands is a rule in
the dialect's `check`. A rule is a function, and its name is the name of the rule. It changes nothing, and
yields each place where the request breaks it, with what is wrong there.

A rule that only says which values some fields may hold has a table of them in its format:

    fields={"function": [Field("arguments", (str,), "not a string")]}

With it, `fields_are_whole` reports each item of the type `function` whose `arguments` are not a string.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Literal, TypeVar

import msgspec

from lamina.core.text.characters import is_blank
from lamina.dialects.marking import BREAKPOINT
from lamina.dialects.memos import CheckMemo
from lamina.dialects.port import Parse, Request, Violation
from lamina.errors import BadInput

Faults = Iterator[tuple[str, str]]
"""Where a rule is broken, and how."""

ItemSort = Literal["call", "result", "text", "marker", "tool", ""]
"""What an item is to the rules that several APIs share. Only the rules of one API look at others."""


class WireItem(msgspec.Struct, frozen=True, gc=False):
    """A block of a message, a call, a result, or a tool that a request defines.

    It stands at `suffix` within `outer`, the place of its message. `type` is the API's word for it, None if
    it has none, and `wire` are its fields. `id` is that of a call, or of the call that a result answers. An
    id or a name that is None is not judged. `inner` are the texts in a result.
    """

    outer: str
    suffix: str
    sort: ItemSort
    type: str | None
    wire: Mapping[str, Any]
    id: str | None = None
    name: str | None = None
    inner: tuple[WireItem, ...] = ()

    @property
    def place(self) -> str:
        return f"{self.outer}{self.suffix}"


class WireMessage:
    """A message as its rules see it.

    `role` is "user", "assistant", "system", another one of the API, or "" for a role that the API does not
    have. `wire` are the fields of the message, which are empty if it is not an object. `is_empty`: the API
    does not take it, since it says nothing. `id` is that of the message, None if its API has none. `refers`:
    it may stand for a call that only the server has.
    """

    __slots__ = ("calls", "id", "is_empty", "items", "markers", "place", "refers", "results", "role", "wire")

    def __init__(
        self,
        place: str,
        role: str,
        wire: Mapping[str, Any],
        items: Sequence[WireItem] = (),
        *,
        is_empty: bool = False,
        markers: Sequence[Any] = (),
        id_: str | None = None,
        refers: bool = False,
    ) -> None:
        self.place = place
        self.role = role
        self.wire = wire
        self.items = items
        self.calls: Sequence[WireItem] = ()
        self.results: Sequence[WireItem] = ()
        if items:
            self.calls = [item for item in items if item.sort == "call"]
            self.results = [item for item in items if item.sort == "result"]
        self.is_empty = is_empty
        self.markers = markers
        self.id = id_
        self.refers = refers

    @property
    def speaks(self) -> bool:
        return self.role == "assistant"


class Field(msgspec.Struct, frozen=True):
    """A field, the types of values that the API takes there, and what is wrong with any other value.

    With `is_filled` an empty value is refused too. `place` is where a fault is reported, seen from the object
    that has the field: the field itself, unless another place is given.
    """

    name: str
    types: tuple[type, ...]
    problem: str
    is_filled: bool = False
    place: str | None = None

    @property
    def suffix(self) -> str:
        if self.place is None:
            return f".{self.name}"
        return self.place

    def is_wrong(self, value: Any) -> bool:
        """Whether the API refuses a value here."""
        return not isinstance(value, self.types) or (self.is_filled and not value)


Rule = Callable[["Scan"], Faults]
AnyRule = TypeVar("AnyRule", bound=Callable[..., Faults])


def name_rules(*rules: AnyRule) -> dict[str, AnyRule]:
    """Rules by their names, in the order in which they are applied."""
    return {rule.__name__: rule for rule in rules}


def _take_any(_: str) -> bool:
    return True


def _has_nothing(_: Request) -> Sequence[WireItem]:
    return ()


def _is_false(_: Any) -> bool:
    return False


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """What an API demands of a request.

    - `read_head` reads the tools and the system text of a request.
    - `rules` are what no other API demands. `COMMON_RULES` are applied besides, as far as the facts go.
    - `turns` is the field of the messages, "" if there may be none. `continues` says whether the server has
      what came before them.
    - `results` says where results stand: in the message after their calls ("next"), in messages of their own
      right after them ("following"), or anywhere before the model speaks again ("later").
    - `pairs_by`: a result has the id of its call, its id and name, or only its place in the order of calls.
    - `results_first`: in a message, results come before everything else, markers excepted.
    - `unique_ids`: no two calls of one message, or of the whole log, have the same id; "" if they may.
    - `takes_name` and `takes_id` say which names and ids the API takes.
    - `takes_blank` says whether a text may say nothing.
    - `begins_with_user`: the assistant cannot speak first. `ends_with_user` says whether the model of a
      request refuses an assistant message at the end, unless that one `is_paused`.
    - `fields` are those of items, by their type. `markable` are the types that may carry a
      breakpoint, None if the API has none.
    - `basis` is what the rules depend on besides the messages.
    """

    rules: Mapping[str, Rule] = {}
    read_head: Callable[[Request], Iterable[WireItem]] = _has_nothing
    turns: str = "messages"
    continues: Callable[[Request], bool] = _is_false
    results: Literal["next", "following", "later"] = "following"
    pairs_by: Literal["id", "name", "order"] = "id"
    unique_ids: Literal["message", "log", ""] = "message"
    results_first: bool = False
    begins_with_user: bool = False
    takes_name: Callable[[str], bool] = _take_any
    takes_id: Callable[[str], bool] = _take_any
    takes_blank: bool = True
    ends_with_user: Callable[[Request], bool] = _is_false
    is_paused: Callable[[WireMessage], bool] = _is_false
    fields: Mapping[str | None, Sequence[Field]] = {}
    markable: Collection[str] | None = None
    basis: Callable[[Request], Any] = lambda _: None


class PastMessages:
    """What the rules need to know of messages that were checked before."""

    def __init__(self) -> None:
        self.last: WireMessage | None = None
        self.call_ids: set[str | None] = set()
        self.answered_ids: set[str | None] = set()
        self.message_ids: set[str | None] = set()
        self.markers: list[Any] = []
        self.has_unseen_calls = False

    def add(self, message: WireMessage) -> None:
        """Remember a message that was checked. Ids must be unique in the whole conversation."""
        self.last = message
        for call in message.calls:
            self.call_ids.add(call.id)
        for result in message.results:
            self.answered_ids.add(result.id)
        self.message_ids.add(message.id)
        self.markers += message.markers
        self.has_unseen_calls = self.has_unseen_calls or message.refers


class Scan:
    """A request as its rules see it: the messages to look at, and what is known of those before them.

    `head` are the tools and the system text of the request, `by_type` all items by the API's word for them.
    """

    def __init__(
        self, request: Request, format_: Format, messages: Sequence[WireMessage], past: PastMessages
    ) -> None:
        self.request = request
        self.format = format_
        self.messages = messages
        self.past = past
        self.head = list(format_.read_head(request))
        self.items = [item for message in messages for item in message.items]
        self.tools = [item for item in self.head if item.sort == "tool"]
        self.by_type: dict[str | None, list[WireItem]] = {}
        for item in chain(self.tools, self.items):
            self.by_type.setdefault(item.type, []).append(item)

    @property
    def spoken(self) -> list[WireMessage]:
        """The messages of the two sides."""
        return [message for message in self.messages if message.role != "system"]

    def list_items(self, item_type: str | None) -> Sequence[WireItem]:
        return self.by_type.get(item_type, ())


def check_messages(
    request: Request,
    messages: Sequence[Any],
    memo: CheckMemo | None,
    format_: Format,
    read: Callable[[Any, int], WireMessage],
) -> list[Violation]:
    """Every rule that a request breaks. With a memo, only the end of a request that grows is read again.

    `read` reads the message at a position. What is before a message with which the model begins to speak is
    not checked again.
    """
    if memo is None:
        views = [read(message, position) for position, message in enumerate(messages)]
        return _apply_rules(Scan(request, format_, views, PastMessages()))
    basis = format_.basis(request)
    start, checked_past = memo.resume(messages, basis)
    past = checked_past or PastMessages()
    views = memo.view_tail(messages, start, read)
    violations = _apply_rules(Scan(request, format_, views, past))
    if violations:
        # The rules find nothing wrong before a seam only if nothing was wrong there the last time.
        memo.forget()
        return violations
    clean_count = _find_last_seam(views, memo.tail)
    for view in views[:clean_count]:
        past.add(view)
    clean_end = start + clean_count
    tail = zip(messages[clean_end:], views[clean_count:], strict=True)
    memo.remember(start, messages[start:clean_end], basis, past, tail)
    return violations


def check_readable(
    request: Request,
    memo: CheckMemo | None,
    format_: Format,
    read: Callable[[Any, int], WireMessage],
    parse: Parse,
) -> list[Violation]:
    """The same for an API of whose rules most say what can be read: a request has to be parsed first.

    One that cannot be parsed breaks `roles` if a role is wrong, else `readable`, and no other rule is tried.
    """
    if memo is None:  # else it was parsed or rendered here
        try:
            parse(request)
        except BadInput as error:
            rule = "readable"
            if error.place.endswith(".role"):
                rule = "roles"
            return [Violation(rule=rule, place=error.place, message=f"{error.problem}; {error.hint}")]
    return check_messages(request, request["messages"], memo, format_, read)


def _find_last_seam(messages: list[WireMessage], tail: int) -> int:
    """The last position before the tail at which the model begins to speak, 0 if there is none.

    For user, assistant, user, assistant … it is the last position of an assistant before the tail.
    """
    # Up to there all calls have their results, and nothing that follows can change that.
    for position in range(len(messages) - tail, 0, -1):
        if messages[position].speaks and messages[position - 1].role in ("user", "tool"):
            return position
    return 0


def _apply_rules(scan: Scan) -> list[Violation]:
    """Every place where a request breaks a rule: first those of its API alone."""
    return apply_rules({**scan.format.rules, **COMMON_RULES}, scan)


def apply_rules(rules: Mapping[str, Callable[[Any], Faults]], subject: Any) -> list[Violation]:
    """Every place where these rules are broken, by rule. `subject` is what the rules look at."""
    violations: list[Violation] = []
    for name, rule in rules.items():
        for place, problem in rule(subject):
            violations.append(Violation(rule=name, place=place, message=problem))
    return violations


def roles_are_known(scan: Scan) -> Faults:
    """A message is an object with one of the roles of this API.

    Broken by `{"role": "bot", "content": "Hi"}`, and by `"Hi"` in the list of messages.
    """
    for message in scan.messages:
        if not message.role:
            yield f"{message.place}.role", "not an object with a role of this API"


def nothing_is_empty(scan: Scan) -> Faults:
    """There is a message, each message says something, and no text is blank where the API refuses that.

    Broken by an answer that was stopped before its first token and kept in the history, by `"content": []`,
    and in some APIs by `{"type": "text", "text": ""}`, which an answer may have before a call.
    """
    if scan.format.turns and not scan.messages and scan.past.last is None:
        yield scan.format.turns, "nothing is said in them; at least one message is required"
    for message in scan.messages:
        if message.is_empty:
            yield message.place, "says nothing"
    if scan.format.takes_blank:
        return
    for item in chain(scan.head, scan.items):
        texts = item.inner
        if item.sort == "text":
            texts = (item,)
        for text in texts:
            if is_blank(str(text.wire.get("text"))):
                yield text.place, "a text that is blank"


def fields_are_whole(scan: Scan) -> Faults:
    """Each field that an item of its type must have is there, and of a type that the API takes.

    Items of other types may hold anything. Broken by servers that give arguments as an object where the API
    wants text, for example.
    """
    for item_type, fields in scan.format.fields.items():
        for item in scan.list_items(item_type):
            for field in fields:
                if field.is_wrong(item.wire.get(field.name)):
                    yield f"{item.place}{field.suffix}", field.problem


def calls_and_results_pair(scan: Scan) -> Faults:
    """Each call has one result, which stands where the API wants it, and each result answers one call.

    Broken if the user interrupted a call and the client sent only "go on" after it, if a client cut off the
    front of its history between a call and its result, and by a result that is sent twice.
    """
    pairing = _Pairing(scan)
    for message in scan.messages:
        pairing.read(message)
    pairing.give_up()
    for call in pairing.unanswered:
        yield call.place, f"no result follows for {call.id or call.name!r}"
    for result in pairing.uncalled:
        yield result.place, f"answers no call that waits: {result.id or result.name!r}"


class _Pairing:
    """The calls that wait for a result, those that got none, and the results that answer no call."""

    def __init__(self, scan: Scan) -> None:
        self.unanswered: list[WireItem] = []
        self.uncalled: list[WireItem] = []
        self._format = scan.format
        self._past = scan.past
        self._waiting: dict[Any, WireItem] = {}
        self._answered: set[Any] = set()
        self._has_unseen_calls = scan.past.has_unseen_calls or scan.format.continues(scan.request)
        self._was_speaking = False

    def read(self, message: WireMessage) -> None:
        """Take the results of a message, then its calls."""
        results = self._format.results
        if results == "next" and message.role == "system":
            return
        if results == "later" and message.speaks and not self._was_speaking:
            self.give_up()
        if message.results:
            self._take_results(message.results)
        if results == "next":
            self._has_unseen_calls = False  # only the first message can answer what the server has seen
        if results == "next" or (results == "following" and not message.results):
            self.give_up()
        if message.calls:
            self._waiting.update(self._list_keys(message.calls))
        self._was_speaking = message.speaks
        self._has_unseen_calls = self._has_unseen_calls or message.refers

    def give_up(self) -> None:
        """Wait for no result any more."""
        if self._waiting:
            self.unanswered += self._waiting.values()
            self._waiting = {}

    def _take_results(self, results: Sequence[WireItem]) -> None:
        """Let each result take its call, or one that only the server has."""
        for own_key, result in self._list_keys(results):
            key = own_key
            if self._format.pairs_by == "order" and self._waiting:
                key = next(iter(self._waiting))
            was_answered = key in self._answered or key in self._past.answered_ids
            self._answered.add(key)
            is_awaited = self._waiting.pop(key, None) is not None
            if not is_awaited and (was_answered or not self._has_unseen_calls):
                self.uncalled.append(result)

    def _list_keys(self, items: Sequence[WireItem]) -> list[tuple[Any, WireItem]]:
        """The calls, or the results, of a message, each with what pairs them.

        Where names count too, that is the id, the name, and of equal ones without an id a number: of two
        calls of `now`, the second has `("", "now", 2)`.
        """
        match self._format.pairs_by:
            case "id":
                return [(item.id, item) for item in items if item.id is not None]
            case "order":
                return list(enumerate(items))
        counts: Counter[Any] = Counter()
        keys: list[tuple[Any, WireItem]] = []
        for item in items:
            key: tuple[Any, ...] = (item.id, item.name)
            counts[key] += 1
            if not item.id:
                key = (*key, counts[key])
            keys.append((key, item))
        return keys


def results_come_first(scan: Scan) -> Faults:
    """In a message of the user, results come before everything else, markers excepted.

    Broken by a user message that says "here is the result:" before it.
    """
    if not scan.format.results_first:
        return
    for message in scan.messages:
        has_other = False
        for item in message.items:
            if item.sort == "result" and has_other:
                yield item.place, "a result must come before other content"
            has_other = has_other or item.sort not in ("result", "marker")


def ids_are_unique(scan: Scan) -> Faults:
    """No two calls have the same id, in one message or in the whole log.

    Broken by clients that count calls from 1 in each turn. Elsewhere an id may come again in another message.
    """
    if not scan.format.unique_ids:
        return
    ids: set[str | None] = set()
    for message in scan.messages:
        if scan.format.unique_ids == "message" and message.calls:
            ids = set()
        for call in message.calls:
            is_repeated = call.id in ids or (
                scan.format.unique_ids == "log" and call.id in scan.past.call_ids
            )
            if call.id and is_repeated:
                yield call.place, f"a call before it has the id {call.id!r} too"
            ids.add(call.id)


def names_and_ids_fit(scan: Scan) -> Faults:
    """Names of tools, and ids of calls, have only characters that the API takes, and as many as it takes.

    Broken by names with a dot, such as `fs.read`, and by a call without an id where the API wants one.
    """
    for item in chain(scan.tools, scan.items):
        if item.name is not None and not scan.format.takes_name(item.name):
            yield f"{item.place}.name", "not a name that this API takes"
        if item.sort in ("call", "result") and not scan.format.takes_id(item.id or ""):
            yield item.place, f"not an id that this API takes: {item.id!r}"


def begins_with_user(scan: Scan) -> Faults:
    """The first message is the user's, or a compaction, which replaces what the user said before it.

    Broken if a client cut off the front of its history.
    """
    if not scan.format.begins_with_user or scan.past.last is not None:
        return
    for first in scan.spoken[:1]:
        is_compaction = len(first.items) > 0 and first.items[0].type == "compaction"
        if first.speaks and not is_compaction:
            yield f"{first.place}.role", "the first message must be the user's"


def ends_with_user(scan: Scan) -> Faults:
    """The last message is not the assistant's, for models that would not continue it.

    Broken by `{"role": "assistant", "content": "{"}` at the end, which was a way to get JSON.
    """
    if not scan.format.ends_with_user(scan.request):
        return
    for last in scan.spoken[-1:]:
        if last.speaks and not scan.format.is_paused(last):
            yield last.place, "this model does not support assistant message prefill; end with the user"


def markers_stand_on_parts(scan: Scan) -> Faults:
    """A prompt_cache_breakpoint stands on a part that may have one, nowhere else.

    Anthropic's API has markers on tools and calls too, and a history may have been marked for it.
    """
    markable = scan.format.markable
    if markable is None:
        return
    holders: Iterable[WireItem | WireMessage] = chain(scan.tools, scan.messages)
    for holder in holders:
        if BREAKPOINT in holder.wire:
            yield holder.place, f"has a {BREAKPOINT}"
    for item in scan.items:
        if item.suffix and item.type not in markable and item.wire.get(BREAKPOINT) is not None:
            yield item.place, f"an item of this type has no {BREAKPOINT}"


COMMON_RULES = name_rules(
    nothing_is_empty,
    roles_are_known,
    begins_with_user,
    ends_with_user,
    calls_and_results_pair,
    results_come_first,
    fields_are_whole,
    names_and_ids_fit,
    ids_are_unique,
    markers_stand_on_parts,
)
"""What several APIs demand, in the order in which it is reported."""
