"""`Policy`: how requests are fitted, as one value that every door takes under the same name.

    policy = Policy(budget=32_000, prefer="memory", recall="off")
    fit_request(request, policy=policy)
    wrap(client, policy=policy)
    Session.open("chats.db", "support-42", policy=policy)
    serve(policy=policy)

A policy says how, never what: the request, its ledger and what the provider reported are given with each
call. What a field leaves open, the door or the model decides. Fields that are plain data are written in the
settings of the gateway and of the user under the same names:

    [policy]
    budget = 32000
    recall = "off"
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from lamina.caches import CacheRules, rates, rules_for
from lamina.caches.rules import UNKNOWN, find_named_rules
from lamina.core.cut_target import TALK, choose_working
from lamina.core.history_window import LastN
from lamina.core.kinds import Kinds
from lamina.core.layout import Layout
from lamina.core.orders import Order
from lamina.core.tokens import Counter
from lamina.core.tool_rules import check_tool_rules
from lamina.core.values import Budget, Preference, RequestHead
from lamina.core.wording import PLAIN
from lamina.dialects.port import Dialect
from lamina.errors import BadInput
from lamina.fitting.markers import Breakpoints, check_breakpoints
from lamina.fitting.recalls import RECALL
from lamina.models.counters import counter_for, from_file
from lamina.models.facts import model as facts_of
from lamina.models.facts import model_or_none, nearest_name

if TYPE_CHECKING:
    from lamina.core.wording import Wording
else:
    Wording = object  # msgspec reads this type for settings files, where a wording cannot be written

RecallMode = Literal["handles", "tool", "off"]
"""How the model can have again what was lowered.

With "handles", what is sent names the key of each thing, and the caller gives the model the tool
(`Fitted.recall_tool`) and answers its calls (`Fitted.answer`). With "tool" the recall tool is added to the
request at the first cut, and no handle is shown before that. With "off" no handle is ever shown.
"""

RecallChoice = Literal["auto", "handles", "tool", "off"]
"""A `RecallMode`, or "auto" for that of the door.

Doors that see the answer (`wrap`, the gateway, LiteLLM) add the tool and answer it. Where the caller sees the
answer (`fit_request`, sessions, the other adapters), handles are shown.
"""

RemindMode = Literal["auto", "off"]
"""Whether lowered passages that a prompt is about are quoted before it, or only recalled by the model."""

UsersMode = Literal["quoted", "kept"]
"""Whether old messages of the user may go under digests, which quote them, or are always sent whole."""

WindowChoice = Literal["model", "price"]
"""How much of a conversation stands in a request: all that the model's window holds, or what is worth its
price."""

Keep = Literal["all", "lowered", "nothing"]
"""What a store keeps of the contents of conversations."""


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How requests are fitted. Every field has a default, and a wrong one raises BadInput at once.

    **How much.** `budget` is how large a request may be: a `Budget`, or a window in tokens. Without it, the
    window of the request's model counts. It counts too in a budget that names no window, such as
    `Budget(reserve=4_000)`, which leaves so many tokens for the answer. With `window="price"` a cut is made
    earlier, when reading more of the conversation with each call costs more than it is worth; the budget
    stays the limit. Where the price is not known, or reading is free, it is the whole window. `prefer` says
    whether cuts keep more of what was said, or save more tokens; with "answers", a talk without tools is cut
    to the little that small models answer best with. `history` sends the last messages of earlier turns only
    (`LastN`, or their number), or with "all" every one that fits.

    **How it is counted.** `counter` counts tokens: a `Counter`, or the path of a tokenizer.json. `rules` are
    those of the cache, by which cuts are priced and markers placed: `CacheRules`, or a name such as
    "anthropic". By default both are the model's.

    **What is lowered, and what stands in its place.** `tools` has rules for the results of single tools:
    "whole" (they stay whole as long as the room allows), "short" (they go first) or "never" (nothing of them
    is kept in digests and reminders). With `users="kept"` every message of the user is sent as it came, and
    what does not fit beside them raises BudgetExceeded. `order` is the order of cuts, `kinds` the table of
    kinds, `wording` the words for what was lowered. `layout` says where a session puts what it adds; a
    request that comes whole keeps its own order.

    **What else is sent.** `breakpoints` says what to do with cache markers, `recall` how the model can have
    again what was lowered, and `remind` whether lowered passages that a prompt is about are quoted before it.
    If `load_tools` names tools, the others are loaded when the model searches for them, where the API has
    tool search.

    **What is stored.** `keep` says what `wrap` and the gateway keep of the contents: all, what was lowered,
    or nothing. A session is its log, so it keeps all.
    """

    budget: Budget | int | None = None
    window: WindowChoice = "model"
    prefer: Preference | None = None
    history: LastN | int | Literal["all"] | None = None
    counter: Counter | str | None = None
    rules: CacheRules | str | None = None
    order: Order | None = None
    kinds: Kinds | None = None
    wording: Wording | None = None
    layout: Layout | None = None
    breakpoints: Breakpoints = "auto"
    recall: RecallChoice = "auto"
    remind: RemindMode = "auto"
    users: UsersMode = "quoted"
    tools: Mapping[str, str] = {}
    load_tools: tuple[str, ...] | None = None
    keep: Keep = "lowered"

    def __post_init__(self) -> None:
        """Check every field, and make a window in tokens a budget, so that equal policies compare equal."""
        msgspec.structs.force_setattr(self, "budget", read_budget(self.budget, "Policy"))
        if isinstance(self.rules, str):
            msgspec.structs.force_setattr(self, "rules", find_named_rules(self.rules, "Policy"))
        match self.history:
            case bool():
                pass  # True is an int, too, but no number of messages
            case int(count):
                msgspec.structs.force_setattr(self, "history", LastN(count))
        _check_choices(self)
        _check_tools(self)
        check_breakpoints(self.breakpoints, "Policy")
        _check_types(self)

    @property
    def own_budget(self) -> Budget | None:
        """The budget that this policy sets; None if its window is the model's."""
        if isinstance(self.budget, Budget) and self.budget.window:
            return self.budget
        return None

    def find_budget(self, model: str, *, dialect: str = "", is_talk: bool = False) -> Budget:
        """The budget, with the window of the model if it names none, and with what is worth sending.

        `is_talk` is what the method of that name says of the request. A model that is like none that lamina
        knows raises BadInput, since its window must be given then.
        """
        budget = self.own_budget or self.fill_budget(facts_of(model, dialect=dialect).budget)
        return self.price_budget(budget, model, dialect=dialect, is_talk=is_talk)

    def fill_budget(self, base: Budget) -> Budget:
        """The budget of this policy with a window from elsewhere: that of a model or a server."""
        if isinstance(self.budget, Budget):
            return fill_budget(self.budget, base)
        return base

    def price_budget(self, budget: Budget, model: str, *, dialect: str, is_talk: bool = False) -> Budget:
        """The budget with what is worth its price, if this policy asks for it and the price is known.

        That of a talk has the few tokens that small models answer best with: see `is_talk`.
        """
        if budget.working is not None:
            return budget
        if is_talk:
            return msgspec.structs.replace(budget, working=TALK)
        if self.window == "model":
            return budget
        facts = model_or_none(nearest_name(model))
        rules = self.find_rules(model, dialect=dialect)
        if facts is None or facts.prices.input is None or rules.name == UNKNOWN:
            return budget
        working = choose_working(rates(rules, model), self.prefer or "balanced")
        return msgspec.structs.replace(budget, working=working)

    def is_talk(self, head: RequestHead, dialect: Dialect) -> bool:
        """Whether a request with this head is a talk with a window of its own.

        It is with `prefer="answers"` if the model has no tool but recall, and reminders bring back the rest.
        """
        if self.prefer != "answers" or self.remind == "off":
            return False
        return all(tool.name == RECALL.name for tool in dialect.head.read(head).tools)

    def describe_inferred(self, model: str, *, dialect: str) -> str:
        """What is taken from the nearest model, since no table has this one, in words; "" if nothing is."""
        facts = model_or_none(model, dialect=dialect)
        if facts is None:
            return ""
        return facts.describe_inferred(window=self.own_budget is None)

    def find_counter(self, model: str) -> Counter:
        """The counter, or else the best one for the model."""
        if self.counter is None:
            return counter_for(model)
        if isinstance(self.counter, str):
            return _read_tokenizer(self.counter, model)
        return self.counter

    def find_rules(self, model: str, *, dialect: str) -> CacheRules:
        """The rules of the cache, or else those of the model's."""
        if isinstance(self.rules, CacheRules):
            return self.rules
        return rules_for(model, dialect=dialect)

    def find_window(self) -> LastN | None:
        """The window over history; None if all of it is sent."""
        if isinstance(self.history, LastN):
            return self.history
        return None

    def find_wording(self, *, has_handles: bool) -> Wording:
        """The wording, with handles only where something answers them."""
        wording = self.wording or PLAIN
        if has_handles or not wording.handles:
            return wording
        if wording is PLAIN:
            return _PLAIN_WITHOUT_HANDLES
        return msgspec.structs.replace(wording, handles=False)

    def defer_tools(self, request: Mapping[str, Any], dialect: Dialect) -> Mapping[str, Any]:
        """The request with all tools deferred but those to load, where the API has tool search.

        It is the same object if nothing changes, and if it was done before.
        """
        if self.load_tools is None or dialect.defer_tools is None:
            return request
        return dialect.defer_tools(request, self.load_tools)

    def recall_mode(self, door: RecallMode) -> RecallMode:
        """How the model can have again what was lowered. With "auto", that of the `door`."""
        if self.recall == "auto":
            return door
        return self.recall

    def over(self, other: Policy) -> Policy:
        """The policy, with the fields of the other one where this one has the default.

        So a gateway's policy holds for each upstream that says nothing else, and the user's for each session.
        """
        fields: dict[str, Any] = {}
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value == getattr(DEFAULT_POLICY, name):
                value = getattr(other, name)
            fields[name] = value
        return Policy(**fields)

    def dump(self) -> dict[str, Any]:
        """The fields that are not the default, as plain data that `load_policy` reads.

        Raises BadInput if one of them is code, such as an order of cuts.
        """
        for name in _CODE:
            if not isinstance(getattr(self, name), str | None):
                hint = "a function cannot be stored or passed to another process: leave it out there"
                raise BadInput(f"{name} is not plain data", place="Policy", hint=hint)
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return fields

    def options(self) -> dict[str, Any]:
        """The options of a build that this policy sets, by their names in `Options`."""
        options = {
            "prefer": self.prefer,
            "order": self.order,
            "kinds": self.kinds,
            "window": self.find_window(),
            "remind": self.remind == "auto",
            "keep_users": self.users == "kept",
            "tools": self.tools,
        }
        return {name: value for name, value in options.items() if value is not None}


def choose_policy(
    policy: Policy | None, *, budget: Budget | int | None = None, place: str = "policy"
) -> Policy:
    """The given policy or the default, with the `budget` that a door takes beside it.

    `place` is the door, for the errors.
    """
    if policy is None:
        policy = DEFAULT_POLICY
    elif not isinstance(policy, Policy):
        hint = "give lamina.Policy(...)"
        if isinstance(policy, Budget):
            hint = "give budget=..., or lamina.Policy(budget=...)"
        raise BadInput(f"policy is {policy!r:.100}", place=place, hint=hint)
    if budget is None:
        return policy
    return msgspec.structs.replace(policy, budget=read_budget(budget, place))


def load_policy(fields: Mapping[str, Any], *, place: str = "policy") -> Policy:
    """The policy of plain data, such as `Policy.dump` returns or a settings file has.

    Raises BadInput if a field is unknown or has a wrong value.
    """
    try:
        return msgspec.convert(dict(fields), Policy)
    except msgspec.ValidationError as error:
        raise BadInput(str(error), place=place, hint=hint_at_policy(str(error))) from None


def hint_at_policy(complaint: str) -> str:
    """What a settings file may say instead, if msgspec refuses a policy with this complaint."""
    field = _FIELD_OF_COMPLAINT.search(complaint)
    if field and field[1] in _CHOICES:
        hint = _hint_at_choices(field[1])
        if field[1] == "window" and "got `int`" in complaint:
            hint += "; a number of tokens is a budget: budget = 60000"
        return hint
    return f"the fields are {', '.join(PLAIN_FIELDS)}"


def fill_budget(budget: Budget, base: Budget) -> Budget:
    """The budget; if it has no window, with that of the `base`.

    One policy may serve many models, so of a small window half is always left for the request.
    """
    if budget.window:
        return budget
    reserve = budget.reserve
    if reserve is not None:
        reserve = min(reserve, base.window // 2)
    return msgspec.structs.replace(
        budget, window=base.window, input=budget.input or base.input, reserve=reserve
    )


def read_budget(budget: Any, place: str) -> Budget | None:
    """The budget. A whole number is the window in tokens. Anything else raises BadInput."""
    match budget:
        case None | Budget():
            return budget
        case bool():
            pass  # True is an int, too, but no window
        case int() if budget > 0:
            return Budget(window=budget)
    hint = "give Budget(window=...), or the window in tokens"
    raise BadInput(f"budget is {budget!r:.100}", place=place, hint=hint)


def _check_choices(policy: Policy) -> None:
    for name, choices in _CHOICES.items():
        value = getattr(policy, name)
        # An array of numbers says neither yes nor no to `in`, so its type is looked at first.
        if isinstance(value, str | None) and value in choices:
            continue
        hint = _hint_at_choices(name)
        if name == "window" and isinstance(value, int):
            hint += f"; a number of tokens is a budget: Policy(budget={value})"
        raise BadInput(f"{name} is {value!r:.100}", place="Policy", hint=hint)


def _hint_at_choices(name: str) -> str:
    return f"use one of {', '.join(repr(choice) for choice in _CHOICES[name] if choice is not None)}"


def _check_tools(policy: Policy) -> None:
    """Check the rules of tools, and make a list of names a tuple. Raises BadInput for anything else."""
    check_tool_rules(policy.tools, "Policy")
    names: Any = policy.load_tools
    if names is None:
        return
    # A set is refused: its order differs from process to process, and so would the bytes of the tools.
    is_ordered = isinstance(names, list | tuple)
    if not is_ordered or not all(isinstance(name, str) for name in names):
        raise BadInput(f"load_tools is {names!r:.100}", place="Policy", hint="give names of tools")
    msgspec.structs.force_setattr(policy, "load_tools", tuple(names))


def _check_types(policy: Policy) -> None:
    """Raise BadInput for a field that has a value of another type. None leaves most of them open."""
    for name, (types, hint) in _TYPES.items():
        value = getattr(policy, name)
        if not isinstance(value, types):
            raise BadInput(f"{name} is {value!r:.100}", place="Policy", hint=hint)
    if isinstance(policy.history, str) and policy.history != "all":
        hint = _TYPES["history"][1]
        raise BadInput(f"history is {policy.history!r:.100}", place="Policy", hint=hint)
    if policy.order is not None and not callable(policy.order):
        hint = "give a function such as lamina.core.ladder.ladder"
        raise BadInput(f"order is {policy.order!r:.100}", place="Policy", hint=hint)


_CHOICES: dict[str, tuple[str | None, ...]] = {
    "prefer": (None, *get_args(Preference)),
    "window": get_args(WindowChoice),
    "recall": get_args(RecallChoice),
    "remind": get_args(RemindMode),
    "users": get_args(UsersMode),
    "keep": get_args(Keep),
}
"""The fields that hold one of a few words."""

_FIELD_OF_COMPLAINT = re.compile(r"`\$\.(?:policy\.)?([a-z_]+)`$")
"""The field that a complaint of msgspec ends with: "… - at `$.policy.window`"."""

_CODE = ("counter", "order", "kinds", "wording")
"""The fields that may hold functions. A counter may also be the path of a tokenizer's file."""

PLAIN_FIELDS = tuple(name for name in Policy.__struct_fields__ if name not in _CODE or name == "counter")
"""The fields that can be written in a settings file."""

_NONE = type(None)
_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "history": ((_NONE, LastN, str), 'give LastN(20), or "all"'),
    "counter": ((_NONE, Counter, str), "give a Counter, or the path of a tokenizer.json"),
    "rules": ((_NONE, CacheRules), 'give CacheRules, or the name of rules, such as "anthropic"'),
    "kinds": ((_NONE, Mapping), "give a table of kinds: {**KINDS, ...}"),
    "wording": ((_NONE, type(PLAIN)), "give a Wording"),
    "layout": ((_NONE, Layout), "give a Layout"),
}
"""The types of the fields that are values, and what to do about another one."""


@lru_cache(maxsize=64)
def _read_tokenizer(path: str, model: str) -> Counter:
    """The counter of a tokenizer's file, with what the model's API adds around messages."""
    counter = from_file(Path(path).expanduser())
    return msgspec.structs.replace(counter, framing=counter_for(model).framing)


_PLAIN_WITHOUT_HANDLES = msgspec.structs.replace(PLAIN, handles=False)

DEFAULT_POLICY = Policy()
