"""Microsoft's Agent Framework: a chat middleware that fits each request of the model.

    lamina = LaminaChatMiddleware(budget=16_000)
    agent = Agent(client=client, tools=[*tools, lamina.recall_tool], middleware=[lamina])
    response = await agent.run("…", session=session)

The history stays whole. The ledger is a field of the session's state, so it is saved with the session
(`session.to_dict()`). A call without a session is fitted too, but has no ledger.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from agent_framework import (
    ChatContext,
    ChatMiddleware,
    ChatResponse,
    Content,
    FunctionInvocationContext,
    FunctionTool,
    Message,
)

from lamina.adapters import chat_turns as chat
from lamina.adapters.bridge import RECALL, ContextFitter, MessageCodec, RecentValues, Turn, add_report
from lamina.core.values import Budget
from lamina.fitting.policy import Policy

__all__ = ["LaminaChatMiddleware"]

_SESSIONS = 256
"""How many sessions' last messages are held for `recall`."""


class LaminaChatMiddleware(ChatMiddleware):
    """Fits each request into the window. `policy` says how; `budget` replaces that of the policy.

    Without a budget the window of the model counts. `recall_tool` belongs to the agent's tools. If the policy
    turns recall off, no handles are shown, and the agent needs no tool. `source_id` is the key of the
    session's state under which the ledger stands. Agents that share a session need one each.
    """

    def __init__(
        self,
        *,
        policy: Policy | None = None,
        budget: Budget | int | None = None,
        source_id: str = "lamina_ledger",
    ) -> None:
        self.fitter = ContextFitter(CODEC, policy=policy, budget=budget)
        self.source_id = source_id
        self.recall_tool = self._make_recall_tool()
        self._messages: RecentValues[str, list[Message]] = RecentValues(_SESSIONS)

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        """Put the fitted messages into the context, and let the framework go on with them.

        The session gets the new ledger, and the whole messages of this call are remembered for `recall`. A
        call without a session has neither. If the server holds the history, the call has only what is new,
        and passes as it is.
        """
        options = context.options or {}
        if options.get("conversation_id"):
            await call_next()
            return
        state: dict[str, Any] = {}
        conversation = ""
        if context.session is not None:
            state = context.session.state
            conversation = context.session.session_id
            self._messages[conversation] = list(context.messages)
        fitted = self.fitter.fit(
            context.messages,
            system=str(options.get("instructions") or ""),
            tools=[_write_tool(each) for each in options.get("tools") or ()],
            head={
                "model": options.get("model") or getattr(context.client, "model", None) or "",
                **chat.write_output_format(options.get("response_format")),
            },
            ledger=state.get(self.source_id),
            conversation=conversation,
        )
        ledger = msgspec.to_builtins(fitted.ledger)
        state[self.source_id] = ledger
        context.messages = list(fitted.messages)

        def take_report(response: ChatResponse[Any]) -> None:
            usage = response.usage_details or {}
            state[self.source_id] = add_report(ledger, {"prompt_tokens": usage.get("input_token_count")})

        if context.stream:
            context.stream_result_hooks.append(take_report)
        await call_next()
        if isinstance(context.result, ChatResponse):
            take_report(context.result)

    def _make_recall_tool(self) -> FunctionTool:
        """The tool. It answers from the last request of its session, which has the whole history."""

        def recall(ctx: FunctionInvocationContext, key: str, start: int = 0, find: str = "") -> str:
            if ctx.session is None:
                return "There is no session, so nothing can be recalled."
            messages = self._messages.get(ctx.session.session_id, [])
            arguments = {"key": key, "start": start, "find": find}
            return self.fitter.answer(messages, arguments, ledger=ctx.session.state.get(self.source_id))

        recall.__annotations__["ctx"] = FunctionInvocationContext
        return FunctionTool(
            name=RECALL.name, description=RECALL.description, func=recall, input_model=RECALL.schema
        )


def _write_tool(tool: Any) -> dict[str, Any]:
    """Write the definition of a tool.

    A `FunctionTool` describes itself, a mapping is a definition already. Of a tool that the provider runs,
    only its name and description are counted.
    """
    if isinstance(tool, FunctionTool):
        return dict(tool.to_json_schema_spec())
    if isinstance(tool, Mapping):
        return dict(tool)
    return chat.write_tool(str(getattr(tool, "name", "")), str(getattr(tool, "description", "")), {})


def _write_message(message: Message) -> list[dict[str, Any]]:
    """Write a message: each result is a turn, and so is everything else together."""
    turns: list[dict[str, Any]] = []
    parts = chat.TurnParts()
    for content in message.contents:
        match content.type:
            case "function_result":
                turns.append(chat.write_result(content.call_id or "", str(content.result or "")))
            case "function_call":
                parts.add_call(content.call_id, content.name, content.arguments or {})
            case "text":
                parts.add_text(content.text)
            case "text_reasoning":
                parts.add_thought(content.text)
            case _ if _is_image(content):
                parts.add_image(content.uri)
    if message.role == "assistant":
        turns.append(parts.write_assistant())
    elif parts.content or not turns:
        turns.append({"role": message.role, "content": parts.content})
    return turns


def _is_written(content: Content) -> bool:
    """Whether a turn holds this content, so that `_read_turn` brings it back."""
    return content.type in ("text", "function_call", "function_result") or _is_image(content)


def _is_image(content: Content) -> bool:
    """Whether a content is a picture: bytes in a data URI, or the address of one."""
    return content.type in ("data", "uri") and str(content.media_type).startswith("image/")


def _read_message(turns: Sequence[Turn], source: Message | None) -> Message:
    """A new message. What no turn holds, and what was not lowered, are contents of its source."""
    if source is None:
        return Message(turns[0].wire["role"], [chat.read_text(turns[0].wire["content"])])
    contents = [content for content in source.contents if not _is_written(content)]
    own = {(content.type, content.call_id): content for content in source.contents}
    for turn in turns:
        contents += _read_turn(turn, own)
    return Message(
        source.role,
        contents,
        author_name=source.author_name,
        message_id=source.message_id,
        additional_properties=source.additional_properties,
    )


def _read_turn(turn: Turn, own: Mapping[tuple[str, str | None], Content]) -> list[Content]:
    """The contents of a turn: copies of those in `own`, with what is sent in their place."""
    wire = turn.wire
    text = chat.read_text(wire.get("content"))
    if wire["role"] == "tool":
        result = own["function_result", wire["tool_call_id"]]
        if turn.place is None:
            result = Content.from_function_result(wire["tool_call_id"], id=result.id, result=text)
        return [result]
    contents: list[Content] = []
    if text:
        contents.append(Content.from_text(text))
    for call_id, _, arguments in chat.read_calls(wire):
        call = copy.copy(own["function_call", call_id])
        call.arguments = arguments
        contents.append(call)
    return contents


CODEC = MessageCodec(write=_write_message, read=_read_message)
