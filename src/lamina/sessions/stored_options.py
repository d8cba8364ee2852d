"""What is stored of an application's runtime options, so that a conversation goes on as it was left.

What is data is stored and used again: a tagged wording, whether handles are shown, a template that is a text.
A function cannot be stored, so its name is. A conversation that is opened without one of its functions takes
no new turn: it would be worded, or redacted, in another way without anybody noticing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import msgspec

from lamina.core.wording import PLAIN, Wording
from lamina.errors import BadInput
from lamina.fitting.policy import Policy

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
        """The wording that this says."""
        if not self.tagged and self.handles:
            return PLAIN
        return Wording(tagged=self.tagged, handles=self.handles, named=self.named)

    def choose_wording(self, given: Wording | None) -> Wording:
        """The wording that was given, or else the stored one; with handles only where they are answered."""
        wording = given or self.wording
        if wording.handles and not self.handles:
            return msgspec.structs.replace(wording, handles=False, named=self.named)
        return wording


def choose_stored_options(
    previous: StoredOptions | None,
    *,
    policy: Policy,
    template: Template | None,
    redact: Callable[[str], str] | None,
    forgo: Sequence[str],
    answers_recall: bool,
) -> StoredOptions:
    """What is stored of the options: what is given now, or else what was stored before.

    In a new conversation handles are shown if somebody answers them: the recall tool, or the caller, whose
    policy says so.
    """
    check_forgone(forgo)
    answers_recall = answers_recall or policy.recall == "handles"
    stored_options = previous or StoredOptions(handles=answers_recall, named=not answers_recall)
    if answers_recall and stored_options.named:
        stored_options = msgspec.structs.replace(stored_options, handles=True, named=False)
    functions = set(stored_options.functions).difference(forgo)
    wording = policy.wording
    if wording is not None:
        stored_options = msgspec.structs.replace(stored_options, tagged=wording.tagged)
        if not wording.handles:
            stored_options = msgspec.structs.replace(stored_options, handles=False, named=wording.named)
        functions = functions | {"words"} if wording.words else functions - {"words"}
    if policy.recall == "off":
        stored_options = msgspec.structs.replace(stored_options, handles=False, named=False)
    if policy.kinds is not None:
        functions.add("kinds")
    if template is not None:
        stored_options = msgspec.structs.replace(stored_options, template=_template_text(template, redact))
        functions = functions - {"template"} if isinstance(template, str) else functions | {"template"}
    if redact is not None:
        functions.add("redact")
    return msgspec.structs.replace(stored_options, functions=tuple(sorted(functions)))


def _template_text(template: Template, redact: Callable[[str], str] | None) -> str:
    """The text of a template as it may be stored; "" for a function."""
    if not isinstance(template, str):
        return ""
    if redact is None:
        return template
    return redact(template)


def find_missing(
    stored_options: StoredOptions, *, policy: Policy, template: Template | None, redact: object
) -> tuple[str, ...]:
    """The functions that a conversation had and was not opened with."""
    arguments: dict[FunctionName, Any] = {
        "words": policy.wording,
        "kinds": policy.kinds,
        "redact": redact,
        "template": template,
    }
    return tuple(name for name in stored_options.functions if arguments[name] is None)


def check_forgone(forgo: Sequence[str]) -> None:
    """Raise BadInput for a name that is none of a function."""
    function_names = get_args(FunctionName)
    for name in forgo:
        if name not in function_names:
            hint = f"use some of {', '.join(function_names)}"
            raise BadInput(f"{name!r} is no function of a session", place="RuntimeOptions.forgo", hint=hint)


def refuse_missing(missing: Sequence[str]) -> None:
    """Raise BadInput if functions are missing that the conversation had."""
    if not missing:
        return
    names = ", ".join(missing)
    raise BadInput(
        f"it was opened without functions that it had: {names}",
        place="Session.open",
        hint="give them again: redact and template in runtime=RuntimeOptions(...), words and kinds in "
        f"policy=Policy(...); or go on without them: RuntimeOptions(forgo={tuple(missing)!r})",
    )
