"""The values that everything else passes along: frozen, comparable, plain JSON through msgspec.

This file knows no rules. `kinds` says what a kind means, `wording` what a form says, and `cut` when a form
falls. Dicts inside a value are never changed after the value is made.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Literal, NewType

import msgspec

from lamina.errors import BadInput

Digest = NewType("Digest", str)
"""Hex SHA-256 of canonical bytes."""

Ref = NewType("Ref", str)
"""Names one segment of a log for good: by key, content and what comes before it, never by position."""

OWN_ORIGIN = "lamina"
"""The `origin` of segments that lamina adds to a request."""


class Role(StrEnum):
    """Whose voice a segment has. A dialect maps it to the roles of its API."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class _Ranked(StrEnum):
    """A closed set of words whose order of definition is their rank."""

    @property
    def rank(self) -> int:
        return _RANKS[self]

    def __lt__(self, other: str) -> bool:
        return self.rank < type(self)(other).rank

    def __le__(self, other: str) -> bool:
        return self.rank <= type(self)(other).rank

    def __gt__(self, other: str) -> bool:
        return self.rank > type(self)(other).rank

    def __ge__(self, other: str) -> bool:
        return self.rank >= type(self)(other).rank


class Form(_Ranked):
    """How much of a segment is sent. Forms only ever fall."""

    OMITTED = "omitted"
    STUB = "stub"
    COMPACT = "compact"
    FULL = "full"


class Layer(_Ranked):
    """In which part of a request an entry is, the most stable part first."""

    SYSTEM = "system"
    LIBRARY = "library"
    HISTORY = "history"
    TURN = "turn"
    PROMPT = "prompt"
    STEPS = "steps"


_RANKS: dict[_Ranked, int] = {
    **{form: rank for rank, form in enumerate(Form)},
    **{layer: rank for rank, layer in enumerate(Layer)},
}


class Text(msgspec.Struct, frozen=True, tag="text", gc=False):
    """A piece of plain text."""

    text: str


class Image(msgspec.Struct, frozen=True, tag="image", kw_only=True, omit_defaults=True):
    """A picture: `data` is base64, or `url` points to it. `tokens` are its tokens, if they are known."""

    data: str = ""
    url: str = ""
    media_type: str = ""
    detail: str = ""
    tokens: int | None = None


class Document(msgspec.Struct, frozen=True, tag="document", kw_only=True, omit_defaults=True):
    """A document such as a PDF: `data` is base64, or `url` points to it, or `text` is its text.

    `context` is what the user says about it.
    """

    data: str = ""
    url: str = ""
    text: str = ""
    media_type: str = ""
    name: str = ""
    tokens: int | None = None
    context: str = ""


class Thinking(msgspec.Struct, frozen=True, tag="thinking", kw_only=True, omit_defaults=True):
    """A model's reasoning, with the provider's signature: sent back verbatim or not at all."""

    text: str = ""
    signature: str = ""


class Raw(msgspec.Struct, frozen=True, tag="raw", kw_only=True):
    """A provider's own block that lamina does not interpret, kept verbatim."""

    dialect: str
    data: Any


class ToolCall(msgspec.Struct, frozen=True, tag="tool_call", kw_only=True):
    """A call of a tool. `arguments` is JSON text, exactly as the model wrote it."""

    id: str
    name: str
    arguments: str = "{}"


class ToolResult(msgspec.Struct, frozen=True, tag="tool_result", kw_only=True, omit_defaults=True):
    """What a tool answered to the call with the same `id`."""

    id: str
    content: tuple[Text | Image | Document | Raw, ...] = ()
    name: str = ""
    error: bool = False


Part = Text | ToolCall | ToolResult | Image | Document | Thinking | Raw
"""What a segment is made of. `Raw` is a block of a provider that lamina keeps as it came."""


class Segment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The smallest piece of context with an identity.

    `attrs` are shown (in tags and handles) and belong to the content; `meta` is for the caller's own
    tags and routing and is never shown or hashed. `joins`: it continues the message of the segment
    before it. `covers`: the keys of older segments that this one replaces. `recover` says how the
    full text can be recovered; None leaves that to the kind, "" says that it cannot. `beside` is what the
    provider's message has for the model besides `parts`, such as a speaker's name: it is sent with every
    form of the segment, and counted, but never shown. `uncounted` is the digest of what that message has
    besides, such as a number or a switch in a field that lamina does not know: it is sent too, and takes no
    tokens. If a client changes it, other bytes leave. `unread`: only a program reads it, such as the result
    of a call that the model's code made. It takes no tokens, and whoever sets it pins the segment too: a
    program cannot recall what is left out.
    """

    role: Role
    kind: str
    parts: tuple[Part, ...]
    key: str = ""
    attrs: dict[str, str] = {}
    joins: bool = False
    covers: tuple[str, ...] = ()
    priority: int | None = None
    pinned: bool = False
    recover: str | None = None
    origin: str = ""
    at: str = ""
    meta: dict[str, Any] = {}
    beside: tuple[Part, ...] = ()
    uncounted: Digest = Digest("")
    unread: bool = False

    @property
    def is_own(self) -> bool:
        """Whether lamina added this segment itself: an answer, a digest, a closing line. No log has it."""
        return self.origin == OWN_ORIGIN


class RequestHead(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a request carries besides messages: tool definitions and parameters, as the provider has them."""

    tools: tuple[dict[str, Any], ...] = ()
    parameters: dict[str, Any] = {}


Preference = Literal["memory", "balanced", "cost", "answers"]
"""Whether a cut would rather keep what was said, or tokens; or weighs both. With "answers" it weighs both,
too, and of a talk `core.cut_target.TALK` tokens are sent."""


class _BudgetWindow(msgspec.Struct, frozen=True, omit_defaults=True):
    """The one field of a budget that needs no name, as in `Budget(16_000)`: `kw_only` is not inherited."""

    window: int = 0


class Budget(_BudgetWindow, frozen=True, kw_only=True, omit_defaults=True):
    """How large a request may be. `window` is the one dial; the rest is derived.

    All limits are tokens of the room (`window - reserve`), by the counter in use. 0 is the window of the
    model: a `Policy` knows it, a build does not. `input` is the most that the request alone may take, if its
    model limits that besides the window. `trigger` and `target` are shares of the room: above the trigger a
    cut is made, down to the target; None lets `core.cut_target` choose it, by price and loss. `keep_last`
    counts the assistant's steps that a cut would rather spare. Without it, a share of the room is spared.
    `working` is how many tokens of the conversation are worth their price. Then a cut is made as if the room
    were what no cut can free and so many tokens more; the window stays the limit. None is for all that fit.
    """

    reserve: int | None = None
    input: int | None = None
    trigger: float = 0.95
    target: float | None = None
    keep_last: int | None = None
    working: int | None = None

    def __post_init__(self) -> None:
        for name, (is_allowed, hint) in self._rules().items():
            value = getattr(self, name)
            if value is None and name in _OPTIONAL_LIMITS:
                continue
            problem = f"{name} is {value!r:.100}"
            if not isinstance(value, int | float):
                raise BadInput(problem, place="Budget", hint="give a number: Budget(4000)")
            if not is_allowed(value):
                raise BadInput(problem, place="Budget", hint=hint)

    def _rules(self) -> dict[str, tuple[Callable[[Any], bool], str]]:
        """What the value of each field must be, with what to do if it is not.

        A field that others are compared with comes before them.
        """
        below_window = ""
        if self.window:
            below_window = f" and below the window ({self.window})"
        return {
            "window": (lambda value: value >= 0, "give the model's context window in tokens"),
            "reserve": (
                lambda value: 0 <= value < (self.window or value + 1),
                f"it must be at least 0{below_window}",
            ),
            "input": (lambda value: value > 0, "give the tokens that a request alone may take, above 0"),
            "trigger": (lambda value: 0 < value <= 1, "give a share of the room above 0, at most 1"),
            "target": (
                lambda value: 0 < value <= self.trigger,
                f"give a share of the room above 0, at most the trigger ({self.trigger})",
            ),
            "keep_last": (lambda value: value >= 0, "give a number of steps, 0 or more"),
            "working": (lambda value: value > 0, "give a number of tokens above 0"),
        }


_OPTIONAL_LIMITS = frozenset(("reserve", "input", "target", "keep_last", "working"))
"""Fields of a budget that may be None: they are derived then."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A segment's place in one request.

    `parts` are the parts as sent (empty when omitted) and `sent` their digest, `why` the reason for
    the form, `role` the voice they are sent in. `opens`: it begins a message. `turn` and `step` count
    from 0; a step is one assistant message with its results, or what the user said before it.
    `prefix` is the chained hash of the stream up to and including it. `mended` is the segment as repair
    left it, if that differs; every wording starts from `source`. `asked` is the call of a result.
    """

    segment: Segment
    ref: Ref
    content: Digest
    role: Role
    layer: Layer = Layer.HISTORY
    form: Form = Form.FULL
    parts: tuple[Part, ...] = ()
    sent: Digest = Digest("")
    tokens: int = 0
    why: str = ""
    opens: bool = True
    turn: int = 0
    step: int = 0
    prefix: Digest = Digest("")
    mended: Segment | None = None
    asked: ToolCall | None = None

    @property
    def source(self) -> Segment:
        """The segment as repair left it."""
        return self.mended or self.segment


class LedgerLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One segment that is sent lowered and must be again: form, wording and digest of the parts as sent.

    `limit` bounds a COMPACT text in characters, 0 is the wording's own; `cut` is the number of the
    cut that lowered it, 0 if it entered lowered. `reference`: equal content was sent in full above it.
    """

    form: Form
    why: str
    wording: int
    sent: Digest
    limit: int = 0
    cut: int = 0
    reference: bool = False


class Fold(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Old segments under one digest, which stays as it was sent until a cut merges it or marks a rule in it.

    `text` is sent in the user's voice and holds nobody else's words; `speaks`: it has such words, and is not
    only a title. `notes` is sent in the model's voice and quotes what the model and the tools said. `merged`
    are the keys of digests that it replaced. `rules` are the messages with a standing rule in them, each with
    its turn, and `whole` says that every word of the user stands in it. `replaced_by` are later messages
    whose rules replace some in it, as its marks say: without these messages it does not hold.
    """

    key: str
    covers: tuple[Ref, ...]
    text: str
    cut: int
    notes: str = ""
    speaks: bool = True
    merged: tuple[str, ...] = ()
    version: int = 1
    rules: tuple[tuple[Ref, int], ...] = ()
    whole: bool = False
    replaced_by: tuple[Ref, ...] = ()


class Reminder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Passages of lowered segments, quoted before the prompt that they are about.

    `before` is the prompt and `sources` the segments: without one of them it does not hold. `text` is sent in
    the user's voice and holds nobody else's words, `notes` in the model's. `about` are terms of the prompt
    that it shares with what is quoted.
    """

    key: str
    before: Ref
    sources: tuple[Ref, ...]
    text: str = ""
    notes: str = ""
    about: tuple[str, ...] = ()


class Cut(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The one event after which bytes already sent may differ.

    `first` is the segment where they begin to. `floor`: the target was not reached, since nothing was left
    that the cut may lower.
    """

    number: int
    reason: str
    before: int = 0
    after: int = 0
    first: str = ""
    lowered: int = 0
    floor: bool = False


class SentMark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last request, as hashes: enough to see whether the next one continues it.

    `tools`, `system` and `library` are the hashes at the ends of these parts. `settings` is that of layout
    and wording, "" for the usual ones. `tokens` are as `counter` counted them, before calibration.
    """

    sent: int
    prefix: Digest
    tools: Digest
    system: Digest
    library: Digest = Digest("")
    tokens: int = 0
    counter: str = ""
    settings: Digest = Digest("")


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider reported, against what the counter said: `millis` is 1000 x reported / counted.

    `counter` is the one that it was learnt with, and it holds for no other; "" holds for any. `doubted` is
    what the last report says, if that was too far off to be believed at once.
    """

    millis: int = 1000
    samples: int = 0
    counter: str = ""
    doubted: int = 0


LEDGER_VERSION = 2


class Ledger(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The only state between two builds; plain JSON.

    `own_tools` are the names of tools that lamina has added to the client's. They stay for good.
    """

    # A factory, since a value that is only the default would not be written.
    version: int = msgspec.field(default_factory=lambda: LEDGER_VERSION)
    lines: dict[Ref, LedgerLine] = {}
    folds: tuple[Fold, ...] = ()
    reminders: tuple[Reminder, ...] = ()
    cuts: tuple[Cut, ...] = ()
    repairs: dict[Ref, str] = {}
    promoted: tuple[Ref, ...] = ()
    bound: dict[Ref, Digest] = {}
    own_tools: tuple[str, ...] = ()
    calibration: Calibration | None = None
    mark: SentMark | None = None

    def dump(self) -> dict[str, Any]:
        """Plain JSON values."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    @staticmethod
    def load(plain: Any) -> Ledger:
        """The ledger that `dump` wrote. Another version raises `BadInput`, so that it is never half read."""
        version = None
        if isinstance(plain, dict):
            version = plain.get("version")
        if version != LEDGER_VERSION:
            hint = f"this lamina reads version {LEDGER_VERSION}; without a ledger a new epoch begins"
            raise BadInput(f"version {version!r}", place="ledger", hint=hint)
        try:
            return msgspec.convert(plain, Ledger)
        except msgspec.ValidationError as error:
            raise BadInput(str(error), place="ledger", hint="pass what dump() gave, unchanged") from None
