"""Defines what a comparison of two requests returns: the difference, the closed set of causes, and advice.

A cause is a fixed word for programs. Each has a sentence and advice for people.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import NamedTuple

import msgspec


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Where and why `after` stops being a continuation of `before`. If it continues it, `cause` is "none".

    `at` counts blocks after the tool definitions, `byte` is the offset inside the block and `offset` the one
    in the whole stream. `was` and `entry` are the places that differ, in `before` and in `after`: a path into
    a request, or an entry's ref. If nothing is lost, `entry` is the first new one. `name` is what a reader
    calls it. `settings` are the parameters that differ, whether or not they matter.

    `kept` and `lost` are tokens of `before`. Without rules they are the tokens that stand unchanged before
    the difference, and the rest. Under the rules of a cache `cached` is what it held of `before`, `kept` what
    of that is read, and `lost` what of it is sent again and paid anew. `price` is what that costs above a
    read, in USD, None if there is no price. What was never cached, or is no longer sent, is not lost.
    """

    cause: str
    at: int
    byte: int = 0
    offset: int = 0
    entry: str = ""
    was: str = ""
    name: str = ""
    kept: int = 0
    lost: int = 0
    cached: int | None = None
    price: float | None = None
    sentence: str = ""
    advice: str = ""
    settings: tuple[str, ...] = ()

    @property
    def continues(self) -> bool:
        """Whether the later request only adds to the earlier one."""
        return self.cause == "none"

    @property
    def place(self) -> str:
        """Where to look: the place in the earlier request, else the one in the later."""
        return self.was or self.entry


class Cause(NamedTuple):
    """A cause, the block where it begins, a detail for the sentence, and the name of what differs."""

    cause: str
    block: int
    detail: str = ""
    name: str = ""


class CauseWords(NamedTuple):
    """A cause in a sentence, what to do about it, and that as a line of code for a wrapped client."""

    sentence: str
    advice: str
    remedy: str = ""


_FREEZE = "Keep it as it was first sent; put what is new after it, in the latest message."
_APPEND = "Only append: what was sent stays, as it was sent."
_SETTING = "Decide it once for each conversation, or take the loss at a moment when the cache is cold anyway."

_ONLY_NEW = 'messages = [*sent_messages, {"role": "user", "content": new_text}]'
_SAME_TOOLS = "tools=TOOLS  # one list, made once, for the whole conversation"
_SAME_SYSTEM = (
    'system=SYSTEM_TEXT, messages=[*history, {"role": "user", "content": f"{changing_text}\\n{question}"}]'
)
_LET_LAMINA_CUT = "client = lamina.wrap(client); client.messages.create(messages=whole_history, ...)"
_MARK = 'client = lamina.wrap(client, policy=lamina.Policy(breakpoints="auto"))'
_PLAN = 'client = lamina.wrap(client, policy=lamina.Policy(breakpoints="plan"))'
_SAME_SETTING = "settings = {...}  # one dict for all calls: client.messages.create(**settings, ...)"

_SETTINGS = {
    "tool_choice": ("tool choice changed", "the tool choice changed"),
    "parallel": ("parallel calls changed", "parallel calls were switched"),
    "thinking": ("thinking setting changed", "the thinking parameters changed"),
    "effort": ("effort changed", "the effort changed"),
    "format": ("format changed", "the format of the answer changed"),
    "verbosity": ("verbosity changed", "the verbosity changed"),
    "speed": ("speed changed", "the speed changed"),
    "tier": ("tier changed", "the service tier changed"),
    "web_search": ("web search changed", "web search was switched or changed"),
    "citations": ("citations changed", "citations were switched"),
    "images": ("images setting changed", ""),
    "task_budget": ("task budget changed", "the task budget changed"),
    "geo": ("region changed", "the region of inference changed"),
    "other": ("another setting changed", "a parameter that lamina does not know changed"),
}
"""Settings on which a cache may depend, with the cause and the sentence of each."""

CAUSES: MappingProxyType[str, CauseWords] = MappingProxyType(
    {
        "none": CauseWords("nothing that was sent has changed", ""),
        "dialect changed": CauseWords(
            "the two requests are for different APIs", "Compare requests of one API."
        ),
        "model changed": CauseWords(
            "another model is asked",
            "Caches are kept for each model: stay with one.",
            "model=MODEL  # the same in every call of a conversation",
        ),
        "tenant changed": CauseWords(
            "the salt that keeps tenants apart differs", "Give all requests of a tenant one salt."
        ),
        "key changed": CauseWords(
            "the cache key differs",
            "Derive the key from the conversation, not from the call or the time.",
            "prompt_cache_key=conversation_id",
        ),
        "cached content changed": CauseWords(
            "another explicit cache is named",
            "Use the cache that was created for this prefix while it lives.",
        ),
        "tools changed": CauseWords(
            "a tool definition changed", "Freeze the definitions for the conversation.", _SAME_TOOLS
        ),
        "tools reordered": CauseWords(
            "the tools stand in another order", "Sort the definitions, by name for one.", _SAME_TOOLS
        ),
        "tool added": CauseWords(
            "a tool was added",
            "Define all tools from the first request on; restrict them by tool choice.",
            _SAME_TOOLS,
        ),
        "tool removed": CauseWords(
            "a tool was removed", "Keep its definition; restrict the choice of tools instead.", _SAME_TOOLS
        ),
        "system changed": CauseWords("the system text changed", _FREEZE, _SAME_SYSTEM),
        "volatile text": CauseWords(
            "text that differs at every call stands in the prefix",
            "Take it out of the prefix, or put it into the latest message.",
            _SAME_SYSTEM,
        ),
        "attachment changed": CauseWords(
            "an attachment changed", "Leave the old one where it is; attach it anew.", _ONLY_NEW
        ),
        "image changed": CauseWords(
            "an image changed", "Send the same bytes again: encode it once, and keep them.", _ONLY_NEW
        ),
        "result changed": CauseWords(
            "the result of a tool changed", "Record results; never shorten them later.", _ONLY_NEW
        ),
        "call changed": CauseWords(
            "a tool call changed", "Send calls back exactly as the model wrote them.", _ONLY_NEW
        ),
        "ids changed": CauseWords(
            "only ids changed",
            "Keep the ids that came with the answer; do not make new ones for each request.",
            _ONLY_NEW,
        ),
        "thinking dropped": CauseWords(
            "thinking that was sent is left out",
            "Send it back unchanged, or never send it at all.",
            _ONLY_NEW,
        ),
        "thinking changed": CauseWords(
            "thinking changed", "Send it back unchanged, signatures included.", _ONLY_NEW
        ),
        "thinking stripped": CauseWords(
            "this model leaves earlier thinking out once the user speaks",
            "It is the model's rule: expect it.",
        ),
        "cut": CauseWords(
            "lamina made a cut here", "A cut is meant: it is followed by requests that continue it."
        ),
        "lowered": CauseWords(
            "it was shortened or left out at an earlier cut", "Pass the last request's ledger to each build."
        ),
        "library changed": CauseWords(
            "an attachment moved into the library", "The in-place layout does not move what was sent."
        ),
        "file changed": CauseWords(
            "a file in the library changed", "The in-place layout sends the new one after the old."
        ),
        "memory changed": CauseWords(
            "the memory in the system text changed",
            "The in-place layout adds it with the next turn, and replaces the old one at a cut.",
        ),
        "settings changed": CauseWords(
            "the conversation is laid out or worded in another way",
            "Open a conversation with the layout and the wording that it had.",
        ),
        "turn over": CauseWords(
            "what was for one turn has left with it", "The in-place layout takes out the time alone."
        ),
        "edited": CauseWords("a message changed", _APPEND, _ONLY_NEW),
        "truncated": CauseWords(
            "the oldest messages are gone: a window slides over the history",
            "Cut rarely and far instead of a little at each turn.",
            _LET_LAMINA_CUT,
        ),
        "summarised": CauseWords(
            "messages were replaced by a shorter text",
            "Do it rarely, in one pass, and keep the text afterwards.",
            _LET_LAMINA_CUT,
        ),
        "inserted": CauseWords("something was inserted into the history", _APPEND, _ONLY_NEW),
        "removed": CauseWords("something was removed from the history", _APPEND, _ONLY_NEW),
        "rewound": CauseWords(
            "it ends earlier, or goes another way", "What stands before it can still be read."
        ),
        "reordered": CauseWords(
            "the same messages stand in another order", "Send them in the order they came in.", _ONLY_NEW
        ),
        "regrouped": CauseWords(
            "the same blocks are split into messages differently",
            "Keep messages as they were first sent.",
            _ONLY_NEW,
        ),
        "role changed": CauseWords(
            "the same text is sent in another role", "Keep the role it was first sent in.", _ONLY_NEW
        ),
        "text split": CauseWords(
            "the same text is split into other blocks",
            "Send text in the blocks in which it was first sent.",
            _ONLY_NEW,
        ),
        "keys reordered": CauseWords(
            "the keys of a JSON object stand in another order",
            "Write JSON with its keys in one order: sort them, or keep the text that was first sent.",
            "json.dumps(value, sort_keys=True)",
        ),
        "re-encoded": CauseWords(
            "only spaces, line ends, Unicode forms or the spelling of JSON differ",
            "Store what was sent, and send that; do not parse and write it again.",
            _ONLY_NEW,
        ),
        **{cause: CauseWords(sentence, _SETTING, _SAME_SETTING) for cause, sentence in _SETTINGS.values()},
        "images setting changed": CauseWords(
            "the first image came, or the last one went", "This provider reads all messages anew then."
        ),
        "expired": CauseWords(
            "the time between the requests is longer than the cache lives",
            "Ask for a longer lifetime, or read the prefix again before it ends.",
            'policy = lamina.Policy(breakpoints=lamina.fitting.Lifetimes(stable="1h", tail="1h"))\n'
            "client = lamina.wrap(client, policy=policy)",
        ),
        "no breakpoint": CauseWords(
            "nothing was marked for the cache",
            "Put a cache breakpoint at the end of what stays the same.",
            _MARK,
        ),
        "breakpoint removed": CauseWords(
            "a cache breakpoint is gone, and no other one finds what it cached",
            "Keep a breakpoint at the end of the last request, or behind it, in every request.",
            _PLAN,
        ),
        "breakpoint moved": CauseWords(
            "every cache breakpoint stands before what was cached, and a cache is searched backwards only",
            "Leave a breakpoint where the last request had one, or put it behind that place.",
            _PLAN,
        ),
        "lifetimes rise": CauseWords(
            "a breakpoint with a longer lifetime stands after one with a shorter, which the API refuses",
            "Give the longer lifetime to what stands first: tools and system text, then the messages.",
            _PLAN,
        ),
        "out of look-back": CauseWords(
            "the last entry stands too far before every breakpoint",
            "Put one more breakpoint between the two.",
            _PLAN,
        ),
        "too many breakpoints": CauseWords(
            "there are more cache breakpoints than the provider takes",
            "Take off the earliest of them.",
            _PLAN,
        ),
        "below the minimum": CauseWords(
            "what could be cached is shorter than the provider caches",
            "Let more of what stays the same stand first; nothing shorter is ever cached.",
        ),
        "unknown": CauseWords(
            "the cache gives back less, and no rule says why", "Please report the two requests."
        ),
    }
)
"""Every cause, with what it means and what to do."""

SETTING_CAUSES = MappingProxyType({name: cause for name, (cause, _) in _SETTINGS.items()})
"""The cause for each name of `stream.SETTINGS`."""


def write_sentence(cause: Cause) -> str:
    """The sentence of a cause, with its detail."""
    sentence = CAUSES[cause.cause].sentence
    if cause.detail:
        return f"{sentence}: {cause.detail}"
    return sentence
