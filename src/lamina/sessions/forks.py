"""Sub-agents that begin with their parent's conversation: the message they go on with, and what they did.

A fork with a task sends the bytes that its parent sent last, so a prefix cache has them already. The parent
gets the result only. What the sub-agent did to find it stays in its own conversation, whose name is a handle:
the parent's recall tool reads it. This module builds no request.
"""

from __future__ import annotations

from lamina.core.values import Ledger, Role, Segment, ToolCall
from lamina.core.wording import text_of
from lamina.dialects.json_values import decode_arguments
from lamina.errors import LaminaError
from lamina.fitting.recalls import RECALL, answer_recall
from lamina.segments import note, segment
from lamina.sessions.records import read_records
from lamina.sessions.stored_conversation import StoredConversation
from lamina.stores.port import Where

FORKED_TASK = (
    "From here on you are a sub-agent, and the conversation above is your background. Nobody answers "
    "questions. Do this task and nothing else, then report all that you found:\n\n"
)
"""What stands before the task of a sub-agent that has its parent's conversation."""


def task_for_fork(task: str, parent: str) -> Segment:
    """The message with which the conversation of a sub-agent goes on after that of its parent."""
    return segment("parent_message", Role.USER, FORKED_TASK + task, attrs={"parent_agent_id": parent})


async def answer_child_recall(call: ToolCall, stored: StoredConversation) -> Segment | None:
    """What a sub-agent did, for a recall that names its conversation; None for any other call.

    Only a sub-agent whose result is in the log can be read, and only in the same workspace.
    """
    name = _recalled_key(call)
    if not name:
        return None
    children = {one.attrs.get("subagent_id") for one in stored.live.log if one.kind == "subagent_result"}
    if name not in children:
        return None
    steps = await _read_steps(stored, name)
    if not steps:
        return None
    transcript = note(name, steps, key=name)
    return answer_recall((transcript,), call, ledger=Ledger())


def _recalled_key(call: ToolCall) -> str:
    """The key that a recall names, or "" if the call is none."""
    if call.name != RECALL.name:
        return ""
    match decode_arguments(call.arguments):
        case {"key": str(key)}:
            return key
    return ""


async def _read_steps(stored: StoredConversation, name: str) -> str:
    """What a sub-agent did after its task, as text; "" if its conversation is gone.

    If it cannot be read, the recall is answered like one of an unknown key.
    """
    try:
        page = await stored.store.read(Where(stored.where.workspace, name))
        log = read_records([record.body for record in page.records]).log
    except LaminaError:
        return ""
    # A child of a child has the tasks of both in its log: the last one is its own.
    start = 0
    for index, one in enumerate(log):
        if one.kind == "parent_message":
            start = index
    return "\n\n".join(f"[{one.role.value}]\n{text_of(one.parts)}" for one in log[start:])
