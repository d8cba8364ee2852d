"""How one conversation is set up: model, dialect, budget, layout and tools.

The setup is stored with the conversation. If the caller gives nothing when it opens the conversation again,
it goes on with the stored one. This module knows no store and no segment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from lamina.caches import rates
from lamina.core.cut_target import Rates
from lamina.core.history_window import LastN
from lamina.core.layout import Layout
from lamina.core.options import DEFAULT_OPTIONS, Options
from lamina.core.values import Budget, Preference, RequestHead
from lamina.dialects import DIALECTS
from lamina.dialects.json_values import drop_nulls
from lamina.dialects.port import Dialect, OwnHead, PlainHead, Tool
from lamina.dialects.translate import choose_options
from lamina.errors import BadInput
from lamina.fitting.own_tools import RECALL_TOOL, OwnTool
from lamina.fitting.policy import Policy, fill_budget, load_policy
from lamina.models.facts import model as facts_of
from lamina.models.names import own_name
from lamina.sessions.stored_options import StoredOptions
from lamina.settings import POLICY, Settings, find_error_line, find_settings_file


class Setup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="setup"):
    """What a conversation is built with.

    Tools and parameters are in `head` in plain words, or in `own` in the words of the dialect. Without a
    budget, the model's window is used. `recall`: the model has the recall tool. `agent` belongs to the
    application. `history` is the window over earlier turns; None sends all of them. `stored_options` is what
    is stored of wording, template and functions.
    """

    model: str = ""
    dialect: str = ""
    budget: Budget | None = None
    prefer: Preference = "balanced"
    layout: Layout = Layout()
    head: PlainHead = PlainHead()
    own: RequestHead | None = None
    recall: bool = False
    agent: dict[str, Any] = {}
    history: LastN | None = None
    stored_options: StoredOptions | None = None

    def over(self, values: dict[str, Any]) -> Setup:
        """The setup with the values that are not None in their place."""
        changes = drop_nulls(values)
        # None leaves a field as it is, so "all" is the word for no window.
        if changes.get("history") == "all":
            changes["history"] = None
        if "agent" in changes:
            changes["agent"] = dict(changes["agent"])
        head = changes.pop("head", None)
        if isinstance(head, RequestHead):
            changes |= {"own": head, "head": PlainHead()}
        elif head is not None:
            changes |= {"own": None, "head": head}
        return msgspec.structs.replace(self, **changes)


class SetupOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the requests of a conversation say besides its messages. It is stored with the conversation.

    What is None stays as it was stored, or has its default. `dialect` is the wire format; by default it is
    the one of the model's provider. `head` has tools and parameters, in plain words or in the dialect's.
    `agent` is for the application's own use.
    """

    dialect: str | None = None
    head: PlainHead | RequestHead | None = None
    agent: Mapping[str, Any] | None = None


def read_policy(policy: Policy) -> dict[str, Any]:
    """What a policy sets in a `Setup`, by name. None leaves a field as it was stored."""
    recall: bool | None = None
    if policy.recall != "auto":
        recall = policy.recall == "tool"
    return {
        "budget": policy.budget,
        "prefer": policy.prefer,
        "layout": policy.layout,
        "history": policy.history,
        "recall": recall,
    }


def dialect_for(setup: Setup) -> Dialect:
    """The dialect that the setup names, or else the one of the model's own provider."""
    name = setup.dialect or _dialect_of_model(setup.model)
    if name not in DIALECTS:
        raise BadInput(f"unknown dialect {name!r}", place="dialect", hint=f"use one of {', '.join(DIALECTS)}")
    return DIALECTS[name]


def _dialect_of_model(model: str) -> str:
    """The dialect of the model's own provider, by its name."""
    name = own_name(model)
    if "claude" in name:
        return "anthropic"
    if "gemini" in name:
        return "gemini"
    return "openai_chat"  # nearly every server understands it


def head_for(setup: Setup, dialect: Dialect) -> OwnHead:
    """Tools and parameters in the dialect's words, with the session's own tools at the end."""
    if setup.own is None:
        return dialect.head.write(_plain_head(setup))
    parameters = dict(setup.own.parameters)
    if setup.model:
        parameters["model"] = setup.model
    definitions = _list_definitions(setup)
    if not definitions:
        return OwnHead(head=RequestHead(tools=setup.own.tools, parameters=parameters))
    added = dialect.head.write(PlainHead(model=setup.model, tools=definitions))
    head = RequestHead(tools=setup.own.tools + added.head.tools, parameters=parameters)
    return OwnHead(head=head, left=added.left)


def find_own_tools(setup: Setup) -> tuple[OwnTool, ...]:
    """The tools whose calls the session answers itself."""
    if not setup.recall:
        return ()
    return (RECALL_TOOL,)


def _list_definitions(setup: Setup) -> tuple[Tool, ...]:
    """The definitions of the session's own tools, which are the last of all tools."""
    return tuple(own_tool.definition for own_tool in find_own_tools(setup))


def defer_head_tools(head: RequestHead, setup: Setup, dialect: Dialect, policy: Policy) -> RequestHead:
    """The head with its tools deferred, if the policy says so. The session's own stay loaded."""
    if policy.load_tools is None:
        return head
    request = {**head.parameters, "tools": list(head.tools)}
    own_names = tuple(own_tool.name for own_tool in find_own_tools(setup))
    policy = msgspec.structs.replace(policy, load_tools=(*policy.load_tools, *own_names))
    deferred_request = policy.defer_tools(request, dialect)
    if deferred_request is request:
        return head
    return RequestHead(tools=tuple(deferred_request["tools"]), parameters=head.parameters)


def _plain_head(setup: Setup) -> PlainHead:
    tools = setup.head.tools + _list_definitions(setup)
    return msgspec.structs.replace(setup.head, model=setup.model or setup.head.model, tools=tools)


def answers_recall(setup: Setup) -> bool:
    """Whether the model has a tool that answers handles: the session's own, or one of that name."""
    if setup.recall:
        return True
    tools = setup.head.tools
    if setup.own is not None:
        tools = dialect_for(setup).head.read(setup.own).tools
    return any(tool.name == RECALL_TOOL.name for tool in tools)


def budget_for(setup: Setup, policy: Policy, dialect: Dialect, head: RequestHead) -> Budget | None:
    """The budget of the setup, with what is worth its price if the policy asks for that.

    None if there is neither a window nor a model.
    """
    budget = _find_budget(setup, head)
    if budget is None:
        return None
    preferring = msgspec.structs.replace(policy, prefer=setup.prefer)
    is_talk = preferring.is_talk(head, dialect)
    return preferring.price_budget(budget, setup.model, dialect=dialect.name, is_talk=is_talk)


def _find_budget(setup: Setup, head: RequestHead) -> Budget | None:
    """The budget of the setup, with the window of its model if it names none, and the answer reserved."""
    budget = setup.budget or Budget()
    if not budget.window:
        if not setup.model:
            return None
        budget = fill_budget(budget, facts_of(setup.model, dialect=setup.dialect).budget)
    output = setup.head.output
    if not output or budget.reserve is not None:
        return budget
    # The core reads `max_tokens` and its like, but not the limit in `generationConfig` (Gemini) or `options`
    # (Ollama).
    if any(name.startswith("max_") for name in head.parameters):
        return budget
    return msgspec.structs.replace(budget, reserve=min(output, budget.window // 2))


def options_in(setup: Setup, policy: Policy, dialect: Dialect, head: RequestHead, *, salt: str) -> Options:
    """The options of a build: what the dialect needs, what is stored, and what the policy sets."""
    chosen = policy.options()
    return choose_options(
        dialect,
        head,
        layout=setup.layout,
        wording=(setup.stored_options or StoredOptions()).choose_wording(policy.wording),
        rates=_rates_for(setup, policy, dialect),
        salt=salt,
        **{**chosen, "window": setup.history, "prefer": setup.prefer},
    )


def _rates_for(setup: Setup, policy: Policy, dialect: Dialect) -> Rates:
    """The rates of the policy's cache rules, or else of the model's; without either the defaults."""
    if policy.rules is None and not setup.model:
        return DEFAULT_OPTIONS.rates
    return rates(policy.find_rules(setup.model, dialect=dialect.name), setup.model)


def load_user_policy(settings: Settings, environment: Mapping[str, str] | None = None) -> Policy:
    """The policy of the settings. `environment` is where these came from, if not from a program."""
    try:
        return load_policy(settings.policy)
    except BadInput as error:
        place = ""
        if environment is not None:
            place = _find_place(environment, error.problem)
        raise BadInput(error.problem, place=place or error.place, hint=error.hint) from None


def _find_place(environment: Mapping[str, str], problem: str) -> str:
    """The line of the settings file that is wrong; "" without one."""
    file = find_settings_file(None, environment)
    try:
        text = file.read_text("utf-8")
    except OSError:
        return ""
    return f"{file}:{find_error_line(text, problem, table=POLICY) or 1}"
