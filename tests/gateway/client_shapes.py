"""Requests in the shapes of seven clients, with texts of our own: what they send, header by header.

Claude Code, Codex, Gemini CLI, opencode, Cline, pi and qwen-code. Each is a conversation that grows by a tool
call and its result, as those clients send it: Claude Code moves its cache marker and turns lists into
strings, Codex has ids on every item, Gemini has the model in the path.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import zstandard


class ClientRequest(NamedTuple):
    """One request of a client."""

    path: str
    headers: dict[str, str]
    body: bytes


Shape = Callable[[int, int], ClientRequest]
"""From the number of a conversation and of the tool calls so far, to the request that a client sends then."""


def claude_code(conversation: int, steps: int) -> ClientRequest:
    billing = f"x-anthropic-billing-header: cc_version=2.1.325.{conversation % 4096:03x}; cc_entrypoint=cli;"
    marker = {"type": "ephemeral"}
    messages: list[Any] = [
        {"role": "user", "content": f"Look into task {conversation}."},
        {"role": "system", "content": "The environment: Linux.", "output_config": {"effort": "medium"}},
    ]
    for step in range(steps):
        call = {"type": "tool_use", "id": f"toolu_{conversation}_{step}", "name": "Bash"}
        messages.append({"role": "assistant", "content": [call | {"input": {"command": f"ls {step}"}}]})
        result = {
            "type": "tool_result",
            "tool_use_id": f"toolu_{conversation}_{step}",
            "content": _output(step),
        }
        messages.append({"role": "user", "content": [result]})
    last = messages[-1]
    if isinstance(last["content"], str):
        messages[-1] = last | {
            "content": [{"type": "text", "text": last["content"], "cache_control": marker}]
        }
    else:
        messages[-1] = last | {"content": [last["content"][0] | {"cache_control": marker}]}
    session = f"00000000-0000-4000-8000-{conversation:012d}"
    user = json.dumps({"device_id": "d", "account_uuid": "", "session_id": session})
    body = {
        "model": "claude-opus-5-5",
        "messages": messages,
        "system": [
            {"type": "text", "text": billing},
            {"type": "text", "text": "You are an agent.", "cache_control": marker},
        ],
        "tools": [_anthropic_tool("Bash"), _anthropic_tool("ToolSearch") | {"defer_loading": True}],
        "metadata": {"user_id": user},
        "max_tokens": 128_000,
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "stream": True,
    }
    headers = {
        "Accept": "application/json",
        "Content-Type": "application/json",
        "User-Agent": "claude-cli/2.1.325 (external, cli)",
        "X-Claude-Code-Session-Id": session,
        "X-Stainless-Lang": "js",
        "anthropic-beta": "claude-code-20250219,context-management-2025-06-27,per-turn-control-2026-07-01",
        "anthropic-version": "2023-06-01",
        "x-api-key": "sk-ant-secret",
        "x-app": "cli",
        "Accept-Encoding": "gzip, deflate, br, zstd",
    }
    return ClientRequest("/v1/messages?beta=true", headers, _dump(body))


def codex(conversation: int, steps: int) -> ClientRequest:
    thread = f"thread-{conversation}"
    text = {"type": "input_text", "text": "You are Codex."}
    question = {"type": "input_text", "text": f"Look into task {conversation}."}
    items: list[Any] = [
        {"type": "message", "role": "developer", "id": f"msg_{conversation}", "content": [text]},
        {"type": "message", "role": "user", "content": [question]},
    ]
    for step in range(steps):
        call_id = f"call_{conversation}_{step}"
        arguments = json.dumps({"cmd": f"ls {step}"})
        call = {"type": "function_call", "id": f"fc_{step}", "call_id": call_id, "name": "exec_command"}
        items.append(call | {"arguments": arguments})
        items.append({"type": "function_call_output", "call_id": call_id, "output": _output(step)})
    namespace = {"type": "namespace", "name": "multi_agent_v1", "description": "d", "tools": []}
    body = {
        "model": "gpt-5-codex",
        "input": items,
        "tools": [
            _openai_tool("exec_command"),
            namespace,
            {"type": "web_search", "external_web_access": False},
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"effort": "medium"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": thread,
        "client_metadata": {"thread_id": thread},
    }
    headers = {
        "authorization": "Bearer sk-secret",
        "content-type": "application/json",
        "content-encoding": "zstd",
        "accept": "text/event-stream",
        "session-id": thread,
        "thread-id": thread,
        "x-codex-window-id": f"{thread}:0",
        "x-codex-turn-metadata": json.dumps({"turn_id": str(steps)}),
        "chatgpt-account-id": "account",
        "user-agent": "codex_cli_rs/0.166.0",
    }
    return ClientRequest("/v1/responses", headers, zstandard.ZstdCompressor().compress(_dump(body)))


def gemini_cli(conversation: int, steps: int) -> ClientRequest:
    context = {"text": "<session_context>today</session_context>"}
    contents: list[Any] = [
        {"role": "user", "parts": [context, {"text": f"Look into task {conversation}."}]},
    ]
    for step in range(steps):
        call = {"name": "run_shell_command", "args": {"command": f"ls {step}"}}
        contents.append({"role": "model", "parts": [{"functionCall": call, "thoughtSignature": "c2ln"}]})
        response = {"name": "run_shell_command", "response": {"output": _output(step)}}
        contents.append({"role": "user", "parts": [{"functionResponse": response}]})
    parameters = {"type": "object", "properties": {"command": {"type": "string"}}}
    declaration = {"name": "run_shell_command", "description": "d", "parametersJsonSchema": parameters}
    body = {
        "contents": contents,
        "systemInstruction": {"role": "user", "parts": [{"text": "You are an agent."}]},
        "tools": [{"functionDeclarations": [declaration]}],
        "generationConfig": {"temperature": 1, "topP": 0.95, "thinkingConfig": {"includeThoughts": True}},
    }
    headers = {
        "x-goog-api-key": "secret",
        "content-type": "application/json",
        "accept-encoding": "gzip, deflate",
    }
    path = "/v1beta/models/gemini-3.1-pro-preview:streamGenerateContent?alt=sse"
    return ClientRequest(path, headers | {"user-agent": "GeminiCLI/0.61.0"}, _dump(body))


def opencode(conversation: int, steps: int) -> ClientRequest:
    headers = {
        "authorization": "Bearer sk-secret",
        "content-type": "application/json",
        "user-agent": "opencode/1.18.33",
        "x-session-id": f"ses_{conversation}",
        "x-session-affinity": f"ses_{conversation}",
    }
    body = _chat_body("gpt-5", conversation, steps) | {
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return ClientRequest("/v1/chat/completions", headers, _dump(body))


def cline(conversation: int, steps: int) -> ClientRequest:
    headers = {
        "Authorization": "Bearer sk-secret",
        "Content-Type": "application/json",
        "User-Agent": "Cline/3.0.65",
    }
    body = _chat_body("gpt-4.1", conversation, steps) | {"temperature": 0, "stream": True}
    return ClientRequest("/v1/chat/completions", headers, json.dumps(body, indent=1).encode())


def pi(conversation: int, steps: int) -> ClientRequest:
    marker = {"type": "ephemeral"}
    messages: list[Any] = [{"role": "user", "content": [{"type": "text", "text": f"Task {conversation}."}]}]
    for step in range(steps):
        call = {"type": "tool_use", "id": f"toolu_{step}", "name": "bash", "input": {"command": f"ls {step}"}}
        messages.append({"role": "assistant", "content": [{"type": "text", "text": "Looking."}, call]})
        result = {
            "type": "tool_result",
            "tool_use_id": f"toolu_{step}",
            "content": _output(step),
            "is_error": False,
        }
        messages.append({"role": "user", "content": [result]})
    last = messages[-1]["content"]
    messages[-1] = messages[-1] | {"content": [last[0] | {"cache_control": marker}]}
    body = {
        "model": "claude-sonnet-5",
        "messages": messages,
        "max_tokens": 32_000,
        "stream": False,
        "system": [{"type": "text", "text": "You are pi.", "cache_control": marker}],
        "tools": [_anthropic_tool("bash") | {"cache_control": marker}],
    }
    headers = {
        "x-api-key": "sk-ant-secret",
        "anthropic-version": "2023-06-01",
        "content-type": "application/json",
    }
    return ClientRequest("/v1/messages", headers, _dump(body))


def qwen_code(conversation: int, steps: int) -> ClientRequest:
    headers = {
        "authorization": "Bearer sk-secret",
        "content-type": "application/json",
        "user-agent": "QwenCode/0.15",
    }
    body = _chat_body("qwen3-coder", conversation, steps) | {"stream": False, "metadata": {"channel": "cli"}}
    return ClientRequest("/v1/chat/completions", headers, _dump(body))


SHAPES: dict[str, Shape] = {
    shape.__name__: shape for shape in (claude_code, codex, gemini_cli, opencode, cline, pi, qwen_code)
}


def _chat_body(model: str, conversation: int, steps: int) -> dict[str, Any]:
    messages: list[Any] = [
        {"role": "system", "content": "You are an agent."},
        {"role": "user", "content": f"Look into task {conversation}."},
    ]
    for step in range(steps):
        function = {"name": "bash", "arguments": json.dumps({"command": f"ls {step}"})}
        call = {"id": f"call_{step}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"call_{step}", "content": _output(step)})
    function_tool = _openai_tool("bash")
    name = function_tool.pop("name")
    tool = {"type": "function", "function": {"name": name, "parameters": function_tool["parameters"]}}
    return {"model": model, "messages": messages, "tools": [tool], "max_tokens": 8000}


def _output(step: int) -> str:
    return f"file_{step}.py\t{step * 7919} bytes – größer\n" * 12


def _anthropic_tool(name: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"command": {"type": "string"}}}
    return {"name": name, "description": "Runs a command.", "input_schema": schema}


def _openai_tool(name: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"cmd": {"type": "string"}}}
    return {
        "type": "function",
        "name": name,
        "description": "Runs it.",
        "strict": False,
        "parameters": schema,
    }


def _dump(body: dict[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
