"""Small records in every shape that is read, made up here: one conversation of a few steps in each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lamina.costs import Trace, UnreadableLine, read_traces

Json = dict[str, Any]

MOMENT = "2026-03-01T10:{:02}:00.000Z"


def written(path: Path, rows: Iterable[Any]) -> Path:
    """A JSONL file of these rows; bytes and text are lines as they are."""
    lines = (row if isinstance(row, bytes) else str(row).encode() if isinstance(row, str) else dumped(row)
             for row in rows)  # fmt: skip
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def dumped(row: Any) -> bytes:
    return json.dumps(row, ensure_ascii=False).encode()


def found(path: Path) -> tuple[list[Trace], list[UnreadableLine]]:
    everything = list(read_traces(path))
    traces = [each for each in everything if isinstance(each, Trace)]
    return traces, [each for each in everything if isinstance(each, UnreadableLine)]


def the_trace(path: Path) -> Trace:
    [trace], damaged = found(path)
    assert damaged == []
    return trace


# Chat Completions


def chat(steps: int, *, ask: str = "Mend the parser.") -> list[Json]:
    """System text, a question, and steps of a call with its result; then the answer."""
    messages: list[Json] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": ask}]
    for step in range(steps):
        function = {"name": "read", "arguments": json.dumps({"path": f"src/{step}.py"})}
        messages += [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{step}", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": f"c{step}", "content": f"line {step} of {ask}"},
        ]
    return [*messages, {"role": "assistant", "content": "Done."}]


TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}


def chat_log(steps: int, *, ask: str = "Mend the parser.") -> list[Json]:
    """Each call of that conversation, as a proxy logs it: the request, the response, the time."""
    messages, rows = chat(steps, ask=ask), []
    for end in range(2, len(messages), 2):
        usage = {
            "prompt_tokens": 1000 * end,
            "completion_tokens": 9,
            "prompt_tokens_details": {"cached_tokens": 900 * end},
        }
        request = {"model": "gpt-5", "tools": [TOOL], "messages": messages[:end], "stream": False}
        answer = {"id": f"r{end}", "choices": [{"index": 0, "message": messages[end]}], "usage": usage}
        rows.append({"request": request, "response": answer, "timestamp": MOMENT.format(end)})
    return rows


def session(steps: int = 2, **more: Any) -> Json:
    """A whole conversation in one record, with what was reported of each answer."""
    messages = chat(steps)
    usage = [
        {"index": at, "input_tokens": 10, "cache_read": 90, "cache_write": None, "output_tokens": 3,
         "ts": MOMENT.format(at)}
        for at, message in enumerate(messages) if message["role"] == "assistant"
    ]  # fmt: skip
    meta = {"model": "gpt-5", "usage": usage, "events": [{"type": "compact_boundary", "index": 4}]}
    row = {"id": "s1", "source": "made/up", "agent": "x", "license": "MIT", "format": "openai-chat"}
    return {**row, "messages": messages, "tools": [TOOL], "meta": meta, **more}


# Messages


def claude(steps: int) -> list[Json]:
    messages: list[Json] = [{"role": "user", "content": "Mend the parser."}]
    for step in range(steps):
        use = {"type": "tool_use", "id": f"t{step}", "name": "read", "input": {"path": f"{step}.py"}}
        result = {"type": "tool_result", "tool_use_id": f"t{step}", "content": f"line {step}"}
        messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    return [*messages, {"role": "assistant", "content": [{"type": "text", "text": "Done."}]}]


def claude_log(steps: int) -> list[Json]:
    """Requests with a cache marker on the last block of each, which so moves from call to call."""
    messages, rows = claude(steps), []
    for end in range(1, len(messages), 2):
        sent = json.loads(json.dumps(messages[:end]))
        if isinstance(sent[-1]["content"], str):
            sent[-1]["content"] = [{"type": "text", "text": sent[-1]["content"]}]
        sent[-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
        request = {"model": "claude-opus-4-6", "system": "Be brief.", "max_tokens": 99, "messages": sent}
        usage = {"input_tokens": 3, "cache_read_input_tokens": 70, "cache_creation_input_tokens": 7,
                 "output_tokens": 5}  # fmt: skip
        answer = {"type": "message", "role": "assistant", "content": messages[end]["content"], "usage": usage}
        rows.append({"request": {"body": request}, "response": {"status": 200, "body": answer}})
    return rows


# Responses


def responses_log(*, chained: bool) -> list[Json]:
    """Two calls; the second names the first, or has its items again."""
    asked = {"type": "message", "role": "user", "content": "Mend the parser."}
    call = {"type": "function_call", "call_id": "f1", "name": "read", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "f1", "output": "line"}
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]}
    usage = {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 60}, "output_tokens": 4}
    second: Json = {"input": [asked, call, result]}
    if chained:
        second = {"input": [result], "previous_response_id": "resp_1"}
    return [
        {"request": {"model": "gpt-5", "instructions": "Be brief.", "input": [asked]},
         "response": {"id": "resp_1", "output": [call], "usage": usage, "created_at": 1_770_000_000}},
        {"request": {"model": "gpt-5", "instructions": "Be brief.", **second},
         "response": {"id": "resp_2", "output": [said], "usage": usage, "created_at": 1_770_000_060}},
    ]  # fmt: skip


# Claude Code


def line(uuid: str, parent: str | None, sort: str, message: Json | None = None, **more: Any) -> Json:
    row: Json = {"uuid": uuid, "parentUuid": parent, "sessionId": "S", "type": sort, "isSidechain": False}
    return row | {"timestamp": MOMENT.format(1)} | ({"message": message} if message else {}) | more


def said(text: Any) -> Json:
    return {"role": "user", "content": text}


def piece(id_: str, *blocks: Json, output: int = 5) -> Json:
    usage = {"input_tokens": 3, "cache_read_input_tokens": 70, "cache_creation_input_tokens": 7}
    return {"id": id_, "role": "assistant", "model": "claude-opus-4-6", "content": list(blocks),
            "usage": {**usage, "output_tokens": output}}  # fmt: skip


def use(id_: str) -> Json:
    return {"type": "tool_use", "id": id_, "name": "Read", "input": {}}


def result(id_: str) -> Json:
    return {"type": "tool_result", "tool_use_id": id_, "content": f"of {id_}"}


def claude_code() -> list[Json]:
    """An answer in three lines with a result between them, a side chain, a compaction, and a last answer."""
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    return [
        {"type": "summary", "summary": "Parser", "leafUuid": "z"},
        {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}},
        {"type": "queue-operation", "operation": "enqueue"},
        {"type": "a-later-type", "sessionId": "S"},
        line("1", None, "user", said("Mend the parser.")),
        line("2", "1", "assistant", piece("A", thinking, output=1)),
        line("3", "2", "assistant", piece("A", use("a"), output=1)),
        line("4", "3", "user", said([result("a")])),
        line("5", "3", "assistant", piece("A", use("b"), output=40)),
        line("6", "5", "user", said([result("b")])),
        line("s1", None, "user", said("Look around."), isSidechain=True),
        line("s2", "s1", "assistant", piece("B", {"type": "text", "text": "Seen."}), isSidechain=True),
        line("7", None, "system", subtype="compact_boundary", logicalParentUuid="6"),
        line("8", "7", "user", said("Summary: it was mended."), isCompactSummary=True),
        line("9", "8", "assistant", {**piece("E", {"type": "text", "text": "No."}), "model": "<synthetic>"}),
        line("10", "8", "assistant", piece("C", {"type": "text", "text": "Done."})),
    ]


def claude_code_requests() -> list[Json]:
    """A session with the lines that say what was sent besides its messages, and a sub-agent."""
    seen = {"type": "text", "text": "Seen."}

    def reminder(uuid: str, text: str, role: str, **fields: Any) -> Json:
        rendered: Json = {"rendered": [{"content": text}], "renderedRole": role}
        return line(uuid, None, "attachment", **rendered, **fields)

    def shape(name: str, **fields: Any) -> Json:
        tools = [{"name": name, "description": "", "input_schema": {"type": "object"}}]
        system = [{"type": "text", "text": f"You have {name}."}]
        return {
            "type": "api-request-shape",
            "sessionId": "S",
            "shape": {"system": system, "tools": tools},
            **fields,
        }

    def blob(*texts: str, **fields: Any) -> Json:
        message = said([{"type": "text", "text": text} for text in texts])
        return {"type": "api-request-blob", "sessionId": "S", "message": message, **fields}

    return [
        line("1", None, "user", said("Mend the parser.")),
        reminder("r1", "Today is Monday.", "system"),
        reminder("r2", "It rains.", "system"),
        reminder("r3", "<system-reminder>Be brief.</system-reminder>", "user"),
        line("r4", None, "attachment", attachment={"type": "prompt_snapshot"}),
        shape("Bash"),
        blob("<system-reminder>Be brief.</system-reminder>\n", "Mend the parser."),
        {"type": "api-request", "sessionId": "S", "keep": 0, "tail": []},
        line("2", "1", "assistant", piece("A", use("a"))),
        line("s1", None, "user", said("Look around."), isSidechain=True, agentId="g"),
        shape("Grep", agentId="g"),
        blob("Another prompt.", agentId="g"),
        line("s2", "s1", "assistant", piece("B", seen), isSidechain=True, agentId="g"),
        line("3", "2", "user", said([result("a")])),
        blob("Mend the parser. Now."),
        line("4", "3", "assistant", piece("C", {"type": "text", "text": "Done."})),
    ]  # fmt: skip


# Codex


def codex() -> list[Json]:
    def item(sort: str, **fields: Any) -> Json:
        return row("response_item", {"type": sort, **fields})

    def row(sort: str, payload: Json) -> Json:
        return {"timestamp": MOMENT.format(2), "type": sort, "payload": payload}

    def counted(total: int) -> Json:
        last = {"input_tokens": total, "cached_input_tokens": 80, "output_tokens": 6}
        info = {"total_token_usage": {"input_tokens": total}, "last_token_usage": last}
        return row("event_msg", {"type": "token_count", "info": info})

    return [
        row("session_meta", {"id": "R", "instructions": "Be brief.", "cwd": "/"}),
        row("turn_context", {"model": "gpt-5-codex"}),
        item("message", role="user", content=[{"type": "input_text", "text": "Mend the parser."}]),
        row("event_msg", {"type": "user_message", "message": "Mend the parser."}),
        item("reasoning", summary=[], encrypted_content="x"),
        item("function_call", call_id="f", name="shell", arguments="{}"),
        counted(100),
        counted(100),
        item("function_call_output", call_id="f", output="line"),
        item("ghost_snapshot"),
        row("event_msg", {"type": "token_count", "info": None}),
        item("message", role="assistant", content=[{"type": "output_text", "text": "Done."}]),
        counted(100),
        counted(200),
        row("a_later_type", {"type": "message"}),
        row("compacted", {"message": "It was mended."}),
        item("message", role="user", content=[{"type": "input_text", "text": "And the tests?"}]),
    ]
