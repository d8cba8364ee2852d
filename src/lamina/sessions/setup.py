"""How one conversation is set up: model, dialect, budget, layout and tools. Kept with it, given anew at will.

A conversation that is opened without a word goes on as it was. It knows no store and no segment.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lamina.caches import rates, rules_for
from lamina.core.arrange import Layout
from lamina.core.cut_target import Rates
from lamina.core.history_window import LastN
from lamina.core.options import DEFAULT, Options
from lamina.core.orders import ladder
from lamina.core.values import Budget, Head
from lamina.dialects import DIALECTS
from lamina.dialects.port import Dialect, OwnHead, PlainHead, Tool
from lamina.dialects.translate import options_for
from lamina.errors import BadInput
from lamina.models.facts import model as facts_of
from lamina.models.facts import own_name
from lamina.workspace.superseding import ORDER

RECALL = Tool(
    name="recall",
    description=(
        "Brings back the full text of something that was shortened or left out above. "
        'Give the key that stands in recall("..."). Long texts come in pieces: go on with `start`, '
        "or give `find` to see only the places where a text occurs."
    ),
    schema={
        "type": "object",
        "properties": {
            "key": {"type": "string", "description": "The key, such as k1f2e3d4c5b6."},
            "start": {"type": "integer", "description": "The character to begin with; 0 if left out."},
            "find": {"type": "string", "description": "A text to look for, whatever its case."},
        },
        "required": ["key"],
    },
)
"""The tool with which a model reads what was lowered. In the list from the first request on, or never."""


class Setup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="setup"):
    """What a conversation is built with.

    `head` are tools and parameters in plain words, `own` the same in the words of the dialect; one of both.
    Without a budget it is the model's window. `agent` is the application's own. `history` is the window over
    earlier turns, None for all of them.
    """

    model: str = ""
    dialect: str = ""
    budget: Budget | None = None
    layout: Layout = Layout()
    head: PlainHead = PlainHead()
    own: Head | None = None
    recall: bool = False
    agent: dict[str, Any] = {}
    history: LastN | None = None

    def over(self, given: dict[str, Any]) -> Setup:
        """The same, with what is given in its place; what is None is not given."""
        said = {name: value for name, value in given.items() if value is not None}
        if "history" in said:
            said["history"] = _window(said["history"])
        head = said.pop("head", None)
        if isinstance(head, Head):
            said |= {"own": head, "head": PlainHead()}
        elif head is not None:
            said |= {"own": None, "head": head}
        return msgspec.structs.replace(self, **said)


def _window(history: Any) -> LastN | None:
    if history == "all":
        return None
    if not isinstance(history, LastN):
        hint = 'give LastN(20), or "all"'
        raise BadInput(f"{history!r:.100} is no window over history", place="history", hint=hint)
    return history


def speaks(setup: Setup) -> Dialect:
    """The dialect that is named, else the one of the model's own provider."""
    name = setup.dialect or _of_model(setup.model)
    if name not in DIALECTS:
        raise BadInput(f"unknown dialect {name!r}", place="dialect", hint=f"use one of {', '.join(DIALECTS)}")
    return DIALECTS[name]


def _of_model(model: str) -> str:
    name = own_name(model)
    return next((d for start, d in (("claude", "anthropic"), ("gemini", "gemini")) if start in name), _CHAT)


_CHAT = "openai_chat"
"""What nearly every server understands."""


def head_for(setup: Setup, dialect: Dialect) -> OwnHead:
    """Tools and parameters in the dialect's words, with the recall tool where it is wanted."""
    tools = (RECALL,) if setup.recall else ()
    if setup.own is None:
        plain = msgspec.structs.replace(setup.head, model=setup.model or setup.head.model)
        return dialect.own_head(msgspec.structs.replace(plain, tools=plain.tools + tools))
    added = dialect.own_head(PlainHead(model=setup.model, tools=tools))
    named = {"model": setup.model} if setup.model else {}
    head = Head(tools=setup.own.tools + added.head.tools, parameters=setup.own.parameters | named)
    return OwnHead(head=head, left=added.left if tools else ())


def budget_for(setup: Setup, head: Head) -> Budget | None:
    """The budget that was given, else the model's window; None where there is no model either.

    What the answer may take is reserved, where the dialect says that in a place of its own.
    """
    budget = setup.budget
    if budget is None:
        if not setup.model:
            return None
        budget = facts_of(setup.model).budget
    output = setup.head.output
    if not output or budget.reserve is not None or any(name.startswith("max_") for name in head.parameters):
        return budget
    return msgspec.structs.replace(budget, reserve=min(output, budget.window // 2))


def options_in(setup: Setup, dialect: Dialect, head: Head, *, salt: str, more: Options | None) -> Options:
    """How to build: what the dialect asks for, and what else the application chose."""
    wished = more or DEFAULT
    order = ORDER if wished.order is ladder else wished.order
    return options_for(
        dialect,
        head,
        layout=setup.layout,
        kinds=wished.kinds,
        wording=wished.wording,
        order=order,
        rates=_rates(setup, dialect, wished),
        salt=wished.salt or salt,
        window=setup.history or wished.window,
    )


def _rates(setup: Setup, dialect: Dialect, wished: Options) -> Rates:
    """What the application chose, else what the cache of the model asks."""
    if wished.rates != DEFAULT.rates or not setup.model:
        return wished.rates
    return rates(rules_for(setup.model, dialect=dialect.name), setup.model)
