"""Constructors: one function for each thing that people put into a log.

    log = [system("Be brief."), file("docs/spec.md", text), user("Summarise this")]

A segment's key is the caller's own name for it (a path, a URL, a message id); without one its content
names it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from lamina.core.values import Document, Image, Part, Role, Segment, Text, Thinking, ToolCall, ToolResult
from lamina.errors import BadInput

__all__ = [
    "assistant",
    "call",
    "clock",
    "document",
    "excerpt",
    "file",
    "image",
    "memory",
    "note",
    "pdf",
    "persona",
    "project",
    "result",
    "segment",
    "selected_text",
    "summary",
    "system",
    "thinking",
    "url",
    "user",
    "video",
    "web_tab",
]


def segment(kind: str, role: Role | str, content: str | Part | Iterable[Part], **fields: Any) -> Segment:
    """A segment of any kind; `fields` are those of `Segment`."""
    return Segment(role=_to_role(role), kind=kind, parts=_to_parts(content), **fields)


def system(text: str, **fields: Any) -> Segment:
    """The instructions at the head of the system text."""
    return segment("system", Role.SYSTEM, text, **fields)


def persona(text: str, *, key: str = "persona", **fields: Any) -> Segment:
    """Who the model is: a section of the system text. Another text under the same key replaces it."""
    return segment("persona", Role.SYSTEM, text, key=key, **fields)


def project(text: str, *, key: str = "project", **fields: Any) -> Segment:
    """What the model works on: a section of the system text, after the persona."""
    return segment("project", Role.SYSTEM, text, key=key, **fields)


def memory(text: str, *, key: str = "memory", **fields: Any) -> Segment:
    """What is remembered of the user: the last section of the system text, since it changes most often."""
    return segment("memory", Role.SYSTEM, text, key=key, **fields)


def user(content: str | Part | Iterable[Part], **fields: Any) -> Segment:
    """What the user says: text, or parts such as pictures. The last one in a log is the prompt."""
    return segment("user", Role.USER, content, **fields)


def assistant(text: str, **fields: Any) -> Segment:
    """What the model answered."""
    return segment("assistant", Role.ASSISTANT, text, **fields)


def thinking(text: str, *, signature: str = "", **fields: Any) -> Segment:
    """What the model thought before its answer. With its `signature` the provider takes it back."""
    return segment("thinking", Role.ASSISTANT, Thinking(text=text, signature=signature), **fields)


def call(
    name: str,
    arguments: Mapping[str, Any] | str,
    *,
    id: str,  # noqa: A002 - what every provider calls it
    joins: bool = True,
    **fields: Any,
) -> Segment:
    """A tool call; it continues the assistant message before it, if there is one."""
    if not isinstance(arguments, str):
        arguments = json.dumps(dict(arguments), ensure_ascii=False)
    part = ToolCall(id=id, name=name, arguments=arguments)
    return segment("tool_call", Role.ASSISTANT, part, joins=joins, **fields)


def result(
    content: str | Part | Iterable[Part],
    *,
    id: str,  # noqa: A002 - what every provider calls it
    name: str = "",
    error: bool = False,
    **fields: Any,
) -> Segment:
    """A tool's result. Calls, results and thinking are no content of a result, and left out."""
    parts = _to_parts(content)
    inner_parts = tuple(part for part in parts if not isinstance(part, ToolCall | ToolResult | Thinking))
    part = ToolResult(id=id, content=inner_parts, name=name, error=error)
    return segment("tool_result", Role.TOOL, part, **fields)


def image(
    *, data: str = "", url: str = "", media_type: str = "", joins: bool = True, **fields: Any
) -> Segment:
    """A picture that belongs to the user's message before it."""
    return segment("user", Role.USER, Image(data=data, url=url, media_type=media_type), joins=joins, **fields)


def document(*, name: str, data: str = "", text: str = "", media_type: str = "", **fields: Any) -> Segment:
    """A document, as base64 or as text, that belongs to the user's message before it."""
    part = Document(name=name, data=data, text=text, media_type=media_type)
    return segment("user", Role.USER, part, joins=True, **fields)


def file(path: str, text: str, **fields: Any) -> Segment:
    """A file beside a prompt, named by its path. If it is attached again unchanged, a reference is sent."""
    return _attachment("file", path, text, {"path": path}, fields)


def note(path: str, text: str, *, title: str = "", **fields: Any) -> Segment:
    """A note beside a prompt, named by its path. Without a `title` it has the file's name."""
    stem = path.rsplit("/", 1)[-1].removesuffix(".md")
    return _attachment("note", path, text, {"title": title or stem, "path": path}, fields)


def url(address: str, text: str, **fields: Any) -> Segment:
    """A page of the web beside a prompt, named by its address."""
    return _attachment("url", address, text, {"url": address}, fields)


def web_tab(address: str, text: str, *, title: str = "", **fields: Any) -> Segment:
    """An open tab of a browser beside a prompt, named by its address."""
    return _attachment("web_tab", address, text, {"title": title, "url": address}, fields)


def video(address: str, text: str, *, title: str = "", **fields: Any) -> Segment:
    """The transcript of a video beside a prompt, named by its address."""
    return _attachment("video", address, text, {"title": title, "url": address}, fields)


def pdf(name: str, text: str, **fields: Any) -> Segment:
    """The text of a PDF file beside a prompt, named by the file."""
    return _attachment("pdf", name, text, {"name": name}, fields)


def excerpt(text: str, *, source: str, place: str = "", **fields: Any) -> Segment:
    """A retrieved snippet, with where it comes from."""
    attrs = {"source": source}
    if place:
        attrs["place"] = place
    return segment("excerpt", Role.USER, text, attrs=attrs, **fields)


def selected_text(text: str, *, path: str = "", **fields: Any) -> Segment:
    """What the user marked: it cannot be recovered, so it is lowered last."""
    attrs = {}
    if path:
        attrs["path"] = path
    return segment("selected_text", Role.USER, text, attrs=attrs, **fields)


def summary(text: str, *, covers: Iterable[str], **fields: Any) -> Segment:
    """A summary that replaces the segments with these keys, handles or refs."""
    keys = tuple(covers)
    attrs = {"original_count": str(len(keys))}
    return segment("progress_summary", Role.USER, text, covers=keys, attrs=attrs, **fields)


def clock(text: str, **fields: Any) -> Segment:
    """The time, as the caller says it: it is sent at the end of its own turn, and in no later one."""
    return segment("clock", Role.USER, text, **fields)


def _attachment(kind: str, key: str, text: str, attrs: dict[str, str], fields: dict[str, Any]) -> Segment:
    """An attachment; `fields` of the caller's own win over `key` and `attrs`."""
    return segment(kind, Role.USER, text, **({"key": key, "attrs": attrs} | fields))


def _to_role(role: Role | str) -> Role:
    try:
        return Role(role)
    except ValueError:
        names = ", ".join(role_name.value for role_name in Role)
        raise BadInput(f"unknown role {role!r:.100}", place="segment", hint=f"use one of {names}") from None


def _to_parts(content: str | Part | Iterable[Part]) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (Text(content),)
    if isinstance(content, Iterable):
        return tuple(content)
    return (content,)
