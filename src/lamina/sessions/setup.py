"""How one conversation is set up: model, dialect, budget, layout and tools, and what its caller gives anew.

The setup is stored with the conversation. If the caller gives nothing when it opens the conversation again,
it goes on with the stored one. Of the runtime options, what is data is stored too: a tagged wording, whether
handles are shown, a template that is a text. A function cannot be stored, so its name is. A conversation that
is opened without one of its functions takes no new turn: it would be worded, or redacted, in another way
without anybody noticing. This module knows no store and no log.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, get_args

import msgspec
from msgspec.structs import replace

from lamina.caches import rates
from lamina.core.cut_target import Rates
from lamina.core.history_window import LastN
from lamina.core.layout import Layout
from lamina.core.options import DEFAULT_OPTIONS, Options
from lamina.core.values import Budget, Preference, RequestHead, Segment
from lamina.core.wording import PLAIN, Wording
from lamina.dialects import DIALECTS
from lamina.dialects.json_values import drop_nulls
from lamina.dialects.port import Dialect, OwnHead, PlainHead
from lamina.dialects.translate import choose_options
from lamina.errors import BadInput
from lamina.fitting.policy import Policy, fill_budget, load_policy
from lamina.fitting.recalls import RECALL
from lamina.models.facts import model as facts_of
from lamina.models.names import own_name
from lamina.sessions.redaction import Redact
from lamina.settings import POLICY, Settings, find_error_line, find_settings_file

FunctionName = Literal["words", "kinds", "redact", "template"]

Template = str | Callable[[str], str]
"""Turns what was typed into what is sent: a function, or a text with {prompt} in it."""

Clock = Callable[[], datetime]

Timer = Callable[[], float]
"""Gives seconds, to measure how long something takes."""


def utc_now() -> datetime:
    return datetime.now(UTC)


class RuntimeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What few applications need, and give anew each time they open a session.

    What is data is stored, and used again if it is not given: the wording of `options`, and a `template` that
    is a text. Of functions that change what is sent the names are stored. Without them the conversation takes
    no new turn, unless `forgo` names them.

    `context` are more sections of the system text. `redact` sees every text before it is stored or sent, and
    `template` puts a prompt into its words. `clock` gives the time of each segment; with None they have none.
    `timer` measures how long things take.
    """

    context: Sequence[Segment] = ()
    redact: Redact | None = None
    template: Template | None = None
    clock: Clock | None = utc_now
    timer: Timer = time.perf_counter
    forgo: Sequence[str] = ()


class StoredOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The part of the runtime options that is stored with a conversation.

    `handles`: lowered text names the key by which it can be recalled. `named`: without a handle it is still
    named. `functions` are the names of those that the application gave.
    """

    tagged: bool = False
    handles: bool = True
    named: bool = False
    template: str = ""
    functions: tuple[FunctionName, ...] = ()

    def choose_wording(self, own_wording: Wording | None) -> Wording:
        """The caller's own wording, or else the stored one; with handles only where they are answered."""
        wording = own_wording
        if wording is None and not self.tagged and self.handles:
            return PLAIN
        if wording is None:
            return Wording(tagged=self.tagged, handles=self.handles, named=self.named)
        if wording.handles and not self.handles:
            return replace(wording, handles=False, named=self.named)
        return wording


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
        return replace(self, **changes)

    @property
    def answers_recall(self) -> bool:
        """Whether the model has a tool that answers handles: the session's own, or one of that name."""
        tools = self.head.tools
        if self.own is not None:
            tools = dialect_for(self).head.read(self.own).tools
        return self.recall or any(tool.name == RECALL.name for tool in tools)


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


def store_options(setup: Setup, policy: Policy, runtime: RuntimeOptions) -> Setup:
    """The setup with what is stored of the options: what the caller gives now, or else what was stored."""
    for name in runtime.forgo:
        if name not in get_args(FunctionName):
            hint = f"use some of {', '.join(get_args(FunctionName))}"
            raise BadInput(f"{name!r} is no function of a session", place="RuntimeOptions.forgo", hint=hint)
    # Handles are shown where somebody answers them: the recall tool, or the caller, whose policy says so.
    is_answered = setup.answers_recall or policy.recall == "handles"
    options = setup.stored_options or StoredOptions(handles=is_answered, named=not is_answered)
    if is_answered and options.named:
        options = replace(options, handles=True, named=False)
    if policy.wording is not None:
        options = replace(options, tagged=policy.wording.tagged)
        if not policy.wording.handles:
            options = replace(options, handles=False, named=policy.wording.named)
    if policy.recall == "off":
        options = replace(options, handles=False, named=False)
    if isinstance(runtime.template, str):
        text = runtime.template
        if runtime.redact is not None:
            text = runtime.redact(text)
        options = replace(options, template=text)
    elif runtime.template is not None:
        options = replace(options, template="")
    arguments = list_arguments(policy, runtime)
    functions = set(options.functions).difference(runtime.forgo, arguments)
    functions.update(name for name, argument in arguments.items() if _is_function(argument))
    return replace(setup, stored_options=replace(options, functions=tuple(sorted(functions))))


def list_arguments(policy: Policy, runtime: RuntimeOptions) -> dict[FunctionName, Any]:
    """What the caller gives of all that may be, or may hold, a function."""
    arguments: dict[FunctionName, Any] = {
        "words": policy.wording,
        "kinds": policy.kinds,
        "redact": runtime.redact,
        "template": runtime.template,
    }
    return {name: argument for name, argument in arguments.items() if argument is not None}


def _is_function(argument: Any) -> bool:
    """Whether an argument cannot be stored. A text can, and so can a wording without functions."""
    if isinstance(argument, Wording):
        return bool(argument.words)
    return not isinstance(argument, str)


def dialect_for(setup: Setup) -> Dialect:
    """The dialect that the setup names, or else the one of the model's own provider."""
    name = setup.dialect or _dialect_of_model(setup.model)
    if name not in DIALECTS:
        raise BadInput(f"unknown dialect {name!r}", place="dialect", hint=f"use one of {', '.join(DIALECTS)}")
    return DIALECTS[name]


def _dialect_of_model(model: str) -> str:
    name = own_name(model)
    if "claude" in name:
        return "anthropic"
    if "gemini" in name:
        return "gemini"
    return "openai_chat"  # nearly every server understands it


def head_for(setup: Setup, dialect: Dialect, policy: Policy) -> OwnHead:
    """Tools and parameters in the dialect's words, with the recall tool at the end.

    If the policy defers tools, the recall tool stays loaded.
    """
    own_tools = (RECALL,) * setup.recall
    if setup.own is None:
        tools = setup.head.tools + own_tools
        written = dialect.head.write(replace(setup.head, model=setup.model or setup.head.model, tools=tools))
        head, left = written.head, written.left
    else:
        added = dialect.head.write(PlainHead(model=setup.model, tools=own_tools))
        parameters = dict(setup.own.parameters)
        if setup.model:
            parameters["model"] = setup.model
        head, left = RequestHead(tools=setup.own.tools + added.head.tools, parameters=parameters), added.left
    if policy.load_tools is not None:
        own_names = tuple(tool.name for tool in own_tools)
        policy = replace(policy, load_tools=(*policy.load_tools, *own_names))
        request = policy.defer_tools({**head.parameters, "tools": list(head.tools)}, dialect)
        head = RequestHead(tools=tuple(request["tools"]), parameters=head.parameters)
    return OwnHead(head=head, left=left)


def budget_for(setup: Setup, policy: Policy, dialect: Dialect, head: RequestHead) -> Budget | None:
    """The budget of the setup, with the window of its model if it names none, and the answer reserved.

    If the policy asks for it, it has what is worth its price. None if there is neither a window nor a model.
    """
    budget = setup.budget or Budget()
    if not budget.window:
        if not setup.model:
            return None
        budget = fill_budget(budget, facts_of(setup.model, dialect=setup.dialect).budget)
    output = setup.head.output
    # The core reads `max_tokens` and its like, but not the limit in `generationConfig` (Gemini) or `options`
    # (Ollama).
    if output and budget.reserve is None and not any(name.startswith("max_") for name in head.parameters):
        budget = replace(budget, reserve=min(output, budget.window // 2))
    preferring = replace(policy, prefer=setup.prefer)
    is_talk = preferring.is_talk(head, dialect)
    return preferring.price_budget(budget, setup.model, dialect=dialect.name, is_talk=is_talk)


def options_for(setup: Setup, policy: Policy, dialect: Dialect, head: RequestHead, *, salt: str) -> Options:
    """The options of a build: what the dialect needs, what is stored, and what the policy sets."""
    return choose_options(
        dialect,
        head,
        layout=setup.layout,
        wording=(setup.stored_options or StoredOptions()).choose_wording(policy.wording),
        rates=_rates_for(setup, policy, dialect),
        salt=salt,
        **{**policy.options(), "window": setup.history, "prefer": setup.prefer},
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
