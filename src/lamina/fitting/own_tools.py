"""The tools whose calls lamina answers itself, as a table: each row has a definition and an answer.

A model calls them like any other tool. Whoever sees its answers (`wrap`, the gateway, a session, an agent)
answers the calls that name one of the rows. A client never sees them (`lamina.conversations.recall_loop`).
A request says which of them it has: `Fitted.own_tools`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import msgspec

from lamina.core.values import Ledger, RequestHead, Segment, ToolCall
from lamina.dialects.port import Dialect, PlainHead, Tool
from lamina.fitting.recalls import RECALL, answer_recall


class ToolSituation(msgspec.Struct, frozen=True, kw_only=True):
    """What an own tool may read when it answers: the whole log and the ledger."""

    log: Sequence[Segment]
    ledger: Ledger


Answering = Callable[[ToolCall, ToolSituation], Segment]
"""How a tool answers a call: with a result, also if the call is wrong. It raises nothing."""


class OwnTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool whose calls lamina answers."""

    definition: Tool
    answer: Answering

    @property
    def name(self) -> str:
        return self.definition.name


def _answer_recall(call: ToolCall, situation: ToolSituation) -> Segment:
    return answer_recall(situation.log, call, ledger=situation.ledger)


RECALL_TOOL = OwnTool(definition=RECALL, answer=_answer_recall)


def answer_call(own_tools: Sequence[OwnTool], call: ToolCall, situation: ToolSituation) -> Segment | None:
    """The result of a call that lamina answers; None if the tool is the client's."""
    own_tool = find_own_tool(own_tools, call.name)
    if own_tool is None:
        return None
    return own_tool.answer(call, situation)


def list_names(own_tools: Iterable[OwnTool]) -> frozenset[str]:
    """The names by which calls of these tools are told from the client's."""
    return frozenset(own_tool.name for own_tool in own_tools)


def find_own_tool(own_tools: Iterable[OwnTool], name: str) -> OwnTool | None:
    """The tool of this name; None if the client answers it."""
    for own_tool in own_tools:
        if own_tool.name == name:
            return own_tool
    return None


def write_tools(
    own_tools: Sequence[OwnTool], dialect: Dialect, head: RequestHead
) -> tuple[tuple[OwnTool, ...], tuple[dict[str, Any], ...]]:
    """The tools that can be added to a head, and their definitions in the words of the dialect.

    A tool whose name the client has taken is left out, and so is one that the dialect cannot express.
    """
    takes_tool = dialect.head.takes_tool
    # Of several choices (`n` of Chat Completions), one may call a tool while another has answered.
    if takes_tool is not None and not takes_tool(head):
        return (), ()
    plain = dialect.head.read(head)
    taken: Collection[str] = {tool.name for tool in plain.tools}
    added: list[OwnTool] = []
    written: list[dict[str, Any]] = []
    for own_tool in own_tools:
        if own_tool.name in taken:
            continue
        own_head = dialect.head.write(PlainHead(model=plain.model, tools=(own_tool.definition,)))
        if own_head.head.tools:
            added.append(own_tool)
            written.append(own_head.head.tools[0])
    return tuple(added), tuple(written)
