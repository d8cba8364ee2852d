"""smolagents' steps as turns of the Chat Completions dialect, and back.

smolagents sends calls and results as text, so what it writes around the arguments of a call counts, too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from smolagents import ActionStep, ChatMessage, MemoryStep
from smolagents.models import MessageRole

from lamina.adapters import chat_turns as chat
from lamina.adapters.bridge import MessageCodec, Turn


@dataclass
class NoteStep(MemoryStep):
    """A text of lamina's own, in place of steps that were left out."""

    role: str
    text: str

    def to_messages(self, summary_mode: bool = False) -> list[ChatMessage]:  # noqa: ARG002, FBT001, FBT002
        return [ChatMessage(role=MessageRole(self.role), content=[chat.write_text(self.text)])]


def _write_step(step: MemoryStep) -> list[dict[str, Any]]:
    """Write an action as its calls, one result for all of them, and pictures. Other steps are messages."""
    if not isinstance(step, ActionStep) or not step.tool_calls:
        return [_write_text(message) for message in step.to_messages()]
    calls = [_write_call(call) for call in step.tool_calls]
    turns = [chat.write_assistant(_read_output(step), calls)]
    turns[0][chat.FRAME] = _write_frame(step.tool_calls)
    turns += [chat.write_result(call.id, "") for call in step.tool_calls]
    turns[1]["content"] = "\n".join(_list_responses(step))
    if step.observations_images:
        turns.append({"role": "user", "content": [_PICTURE] * len(step.observations_images)})
    return turns


_PICTURE = chat.write_image("data:image/png;base64,iVBORw0KGgo=")
"""Stands for any picture. All of them count the same, and encoding one takes long."""


def _write_call(call: Any) -> dict[str, Any]:
    """Write a call. Code is sent as a quoted text, with its line ends written out, so it counts as that."""
    arguments = call.arguments
    if isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return chat.write_call(call.id, call.name, arguments)


def _write_frame(calls: Sequence[Any]) -> str:
    """What smolagents writes around the arguments of calls: they are sent as the text of a list."""
    without_arguments = [replace(call, arguments={}).dict() for call in calls]
    return f"Calling tools:\n{without_arguments}"


def _write_text(message: ChatMessage) -> dict[str, Any]:
    """Write a message of a step that is not an action. What the model said or called is the assistant's."""
    role = "user"
    if message.role in (MessageRole.ASSISTANT, MessageRole.TOOL_CALL):
        role = "assistant"
    text = chat.read_text(message.content)
    pictures = [_PICTURE for part in message.content or () if part["type"] == "image"]
    if pictures:
        return {"role": role, "content": [chat.write_text(text), *pictures]}
    return {"role": role, "content": text}


def _read_output(step: ActionStep) -> str:
    """What the model said besides its calls. A model may return parts instead of text."""
    return chat.read_text(step.model_output)


def _list_responses(step: ActionStep) -> list[str]:
    """What the tools of a step answered, as smolagents writes it for the model."""
    responses = [message for message in step.to_messages() if message.role == MessageRole.TOOL_RESPONSE]
    return [chat.read_text(message.content) for message in responses]


def _read_step(turns: Sequence[Turn], source: MemoryStep | None) -> MemoryStep:
    """A new step: what was lowered in it is new, the rest is as it was.

    The first call's result stands for all results of the step, as `_write_step` has written it. A step
    that is no action, or lamina's own text, becomes a note.
    """
    wire = turns[0].wire
    if not isinstance(source, ActionStep) or not source.tool_calls:
        return NoteStep(role=wire["role"], text=chat.read_text(wire["content"]))
    step = source
    if turns[-1].wire["role"] != "user":
        step = replace(step, observations_images=None)
    for turn in turns:
        if turn.place is not None:
            continue
        if turn.wire["role"] == "assistant":
            step = _change_calls(step, turn.wire)
        elif turn.wire["tool_call_id"] == source.tool_calls[0].id:
            text = chat.read_text(turn.wire["content"]).removeprefix("Observation:\n")
            step = replace(step, observations=text, error=None)
    return step


def _change_calls(step: ActionStep, wire: dict[str, Any]) -> ActionStep:
    """The step with the text of a lowered turn, and with those of its arguments that were lowered."""
    sent_arguments = chat.map_arguments(wire)
    calls: list[Any] = []
    for call in step.tool_calls or ():
        written = _write_call(call)["function"]["arguments"]
        sent = sent_arguments.get(call.id, written)
        if sent != written:
            calls.append(replace(call, arguments=sent))
        else:
            calls.append(call)
    return replace(step, model_output=chat.read_text(wire.get("content")), tool_calls=calls)


CODEC = MessageCodec(write=_write_step, read=_read_step)
