"""What is stored of an application's runtime options, so that a conversation goes on as it was left.

What is data is stored and used again: a tagged wording, whether handles are shown, a template that is a text.
A function cannot be stored, so its name is. A conversation that is opened without one of its functions takes
no new turn: it would be worded, or redacted, in another way without anybody noticing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import msgspec
from msgspec.structs import replace

from lamina.core.wording import PLAIN, Wording
from lamina.errors import BadInput
from lamina.fitting.policy import Policy
from lamina.sessions.redaction import Redact

FunctionName = Literal["words", "kinds", "redact", "template"]

Template = str | Callable[[str], str]
"""Turns what was typed into what is sent: a function, or a text with {prompt} in it."""


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

    @property
    def wording(self) -> Wording:
        if not self.tagged and self.handles:
            return PLAIN
        return Wording(tagged=self.tagged, handles=self.handles, named=self.named)

    def choose_wording(self, own_wording: Wording | None) -> Wording:
        """The caller's own wording, or else the stored one; with handles only where they are answered."""
        wording = own_wording or self.wording
        if wording.handles and not self.handles:
            return replace(wording, handles=False, named=self.named)
        return wording


def choose_stored_options(
    previous: StoredOptions | None,
    *,
    policy: Policy,
    template: Template | None,
    redact: Redact | None,
    forgo: Sequence[str],
    answers_recall: bool,
) -> StoredOptions:
    """What is stored of the options: what the caller gives now, or else what was stored before."""
    _check_forgone(forgo)
    stored_options = _choose_handles(previous, policy, answers_recall=answers_recall)
    if policy.wording is not None:
        stored_options = replace(stored_options, tagged=policy.wording.tagged)
    if template is not None:
        stored_options = replace(stored_options, template=_template_text(template, redact))
    arguments = _list_arguments(policy, template, redact)
    functions = set(stored_options.functions).difference(forgo, arguments)
    functions.update(name for name, argument in arguments.items() if _is_function(argument))
    return replace(stored_options, functions=tuple(sorted(functions)))


def _choose_handles(previous: StoredOptions | None, policy: Policy, *, answers_recall: bool) -> StoredOptions:
    """The options, with handles where somebody answers them.

    In a new conversation that is the recall tool, or the caller, whose policy says so.
    """
    is_answered = answers_recall or policy.recall == "handles"
    stored_options = previous or StoredOptions(handles=is_answered, named=not is_answered)
    if is_answered and stored_options.named:
        stored_options = replace(stored_options, handles=True, named=False)
    if policy.wording is not None and not policy.wording.handles:
        stored_options = replace(stored_options, handles=False, named=policy.wording.named)
    if policy.recall == "off":
        stored_options = replace(stored_options, handles=False, named=False)
    return stored_options


def _template_text(template: Template, redact: Redact | None) -> str:
    """The text of a template as it may be stored; "" for a function."""
    if not isinstance(template, str):
        return ""
    if redact is None:
        return template
    return redact(template)


def _list_arguments(
    policy: Policy, template: Template | None, redact: Redact | None
) -> dict[FunctionName, Any]:
    """What the caller gives of all that may be, or may hold, a function."""
    arguments: dict[FunctionName, Any] = {
        "words": policy.wording,
        "kinds": policy.kinds,
        "redact": redact,
        "template": template,
    }
    return {name: argument for name, argument in arguments.items() if argument is not None}


def _is_function(argument: Any) -> bool:
    """Whether an argument cannot be stored. A text can, and so can a wording without functions."""
    if isinstance(argument, Wording):
        return bool(argument.words)
    return not isinstance(argument, str)


def _check_forgone(forgo: Sequence[str]) -> None:
    """Raise BadInput for a name that is none of a function."""
    function_names = get_args(FunctionName)
    for name in forgo:
        if name not in function_names:
            hint = f"use some of {', '.join(function_names)}"
            raise BadInput(f"{name!r} is no function of a session", place="RuntimeOptions.forgo", hint=hint)


def refuse_missing(
    stored_options: StoredOptions, *, policy: Policy, template: Template | None, redact: Redact | None
) -> None:
    """Raise BadInput if the conversation had functions that it was not opened with."""
    arguments = _list_arguments(policy, template, redact)
    missing = tuple(name for name in stored_options.functions if name not in arguments)
    if not missing:
        return
    names = ", ".join(missing)
    raise BadInput(
        f"it was opened without functions that it had: {names}",
        place="Session.open",
        hint="give them again: redact and template in runtime=RuntimeOptions(...), words and kinds in "
        f"policy=Policy(...); or go on without them: RuntimeOptions(forgo={missing!r})",
    )
