"""Leaves out of a request what its kind of upstream cannot take.

The public APIs of Anthropic, OpenAI and Google get every request as the client wrote it. Other servers speak
the same formats with gaps. A profile is a list of edits; each edit names what it leaves out, for the account.
A request in which no edit finds anything is the same object afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from operator import is_
from typing import Any, NamedTuple

BILLING = "x-anthropic-billing-header:"
"""Begins the system block in which Claude Code says who pays. It differs between requests."""

Json = dict[str, Any]
Edit = Callable[[Json], Json]


class ProfileEdit(NamedTuple):
    """An edit with its name. A request has something for it only if its text has this `sign`."""

    name: str
    sign: bytes
    edit: Edit


class Profile(NamedTuple):
    """The edits of one kind of upstream, the dialects that it speaks, and the header for its key.

    `drops_betas`: the server knows no betas of Anthropic's. `salts`: it can keep the caches of workspaces
    apart by a field of the request. `reads_markers`: it caches what a request marks.
    """

    dialects: tuple[str, ...]
    key_header: str
    edits: tuple[ProfileEdit, ...] = ()
    drops_betas: bool = False
    salts: bool = False
    reads_markers: bool = False


class Profiled(NamedTuple):
    """A request for one upstream, and what was left out of it."""

    request: Json
    left_out: tuple[str, ...] = ()


def apply_profile(profile: Profile, request: Json, text: bytes) -> Profiled:
    """Leave out what this kind of upstream cannot take. `text` is the request as it came.

    An edit may look at every message. To look for a few bytes in all of them takes a hundredth of that.
    """
    left_out: list[str] = []
    for name, sign, edit in profile.edits:
        if sign not in text:
            continue
        edited = edit(request)
        if edited is not request:
            left_out.append(name)
        request = edited
    return Profiled(request, tuple(left_out))


def add_salt(request: Json, workspace: str) -> Json:
    """The request with a salt of its workspace: no other workspace can find its prefix in the cache."""
    if "cache_salt" in request:
        return request
    salt = blake2b(workspace.encode(), digest_size=16, person=b"lamina-salt").hexdigest()
    return {**request, "cache_salt": salt}


def _drop_billing_block(request: Json) -> Json:
    """Without the system block that changes from request to request and would end the cached prefix there."""
    system = request.get("system")
    if not isinstance(system, list):
        return request
    other_blocks = [block for block in system if not _is_billing(block)]
    if len(other_blocks) == len(system):
        return request
    return {**request, "system": other_blocks}


def _is_billing(block: Any) -> bool:
    if not isinstance(block, Mapping):
        return False
    text = block.get("text")
    return isinstance(text, str) and text.startswith(BILLING)


def _drop_marker_lifetimes(request: Json) -> Json:
    """Without `ttl` in cache markers, where the API has markers: never inside the arguments of a tool."""
    edited = request
    for name in ("system", "tools"):
        edited = _edit_list(edited, name, _drop_ttl)
    return _edit_list(edited, "messages", _drop_ttl_in_message)


def _drop_ttl_in_message(message: Json) -> Json:
    return _edit_list(_drop_ttl(message), "content", _drop_ttl)


def _drop_ttl(block: Json) -> Json:
    marker = block.get("cache_control")
    if not isinstance(marker, Mapping) or "ttl" not in marker:
        return block
    without_ttl = dict(marker)
    del without_ttl["ttl"]
    return {**block, "cache_control": without_ttl}


def _edit_list(holder: Json, name: str, edit: Edit) -> Json:
    """An object with each dict in one of its lists edited; the same object if no edit changes one."""
    items = holder.get(name)
    if not isinstance(items, list):
        return holder
    edited_items = list(items)
    for place, item in enumerate(items):
        if isinstance(item, dict):
            edited_items[place] = edit(item)
    if all(map(is_, edited_items, items)):
        return holder
    return {**holder, name: edited_items}


def _drop_fields(*names: str) -> Edit:
    def drop(request: Json) -> Json:
        if not any(name in request for name in names):
            return request
        return {name: value for name, value in request.items() if name not in names}

    return drop


_BILLING_EDIT = ProfileEdit("the billing block of Claude Code", BILLING.encode(), _drop_billing_block)
_TTL_EDIT = ProfileEdit("lifetimes of cache markers", b'"ttl"', _drop_marker_lifetimes)
_MANAGEMENT_EDIT = ProfileEdit(
    "context_management", b'"context_management"', _drop_fields("context_management")
)
_ALL_EDITS = (_BILLING_EDIT, _TTL_EDIT, _MANAGEMENT_EDIT)
_OPEN_DIALECTS = ("openai_chat", "openai_responses", "anthropic")

PROFILES: dict[str, Profile] = {
    "anthropic": Profile(("anthropic",), "x-api-key", reads_markers=True),
    "openai": Profile(("openai_chat", "openai_responses"), "authorization"),
    "gemini": Profile(("gemini",), "x-goog-api-key"),
    "openrouter": Profile(_OPEN_DIALECTS, "authorization", (_BILLING_EDIT,), reads_markers=True),
    "bedrock": Profile(
        ("anthropic", "bedrock_converse"),
        "authorization",
        _ALL_EDITS,
        drops_betas=True,
        reads_markers=True,
    ),
    "llama.cpp": Profile(_OPEN_DIALECTS, "authorization", _ALL_EDITS, drops_betas=True),
    "vllm": Profile(_OPEN_DIALECTS, "authorization", _ALL_EDITS, drops_betas=True, salts=True),
    "ollama": Profile(("ollama", "openai_chat", "anthropic"), "authorization", _ALL_EDITS, drops_betas=True),
}
"""Every profile by its name in the settings. docs/upstreams.md lists what each leaves out."""


def drops_billing(name: str) -> bool:
    """Whether a profile leaves out the block of Claude Code that says who pays."""
    return _BILLING_EDIT in PROFILES[name].edits
