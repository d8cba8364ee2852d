from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lamina.cli.recording import make_recording
from lamina.costs import RecordedUsage, Trace
from lamina.costs.logs.model_calls import read_conversation
from lamina.dialects import DIALECTS
from lamina.formats.codec import encode
from tests.costs import recorded
from tests.costs.recorded import chat, found, the_trace, written


def request_of(trace: Trace) -> dict[str, Any]:
    field = "input" if trace.dialect == "openai_responses" else "messages"
    return {"model": trace.model, **trace.head, field: trace.items}


# one session in a record


def test_a_session_keeps_its_messages_and_what_was_reported(tmp_path: Path) -> None:
    row = recorded.session()
    trace = the_trace(written(tmp_path / "a.jsonl", [row]))
    assert (trace.id, trace.source, trace.model, trace.dialect) == ("s1", "made/up", "gpt-5", "openai_chat")
    assert trace.items == row["messages"]
    assert trace.head == {"tools": [recorded.TOOL]}
    assert list(trace.used) == [2, 4, 6]
    assert trace.used[2] == RecordedUsage(uncached=10, read=90, output=3, at=1_772_359_320.0)
    assert trace.compacted == (4,)
    assert trace.place == f"{tmp_path / 'a.jsonl'}:1"


@pytest.mark.parametrize(
    ("row", "dialect"),
    [
        ({"format": "anthropic-messages", "messages": [{"role": "user", "content": "a"}]}, "anthropic"),
        ({"format": "openai-responses", "input": [{"role": "user", "content": "a"}]}, "openai_responses"),
        ({"messages": [{"role": "user", "content": "a"}]}, "openai_chat"),
        ({"system": "s", "messages": [{"role": "user", "content": "a"}]}, "anthropic"),
        ({"custom_id": "x", "body": {"messages": [{"role": "user", "content": "a"}]}}, "openai_chat"),
        ({"custom_id": "x", "body": {"input": "a"}}, "openai_responses"),
    ],
)
def test_the_dialect_is_what_the_record_says_or_shows(
    tmp_path: Path, row: dict[str, Any], dialect: str
) -> None:
    assert the_trace(written(tmp_path / "a.jsonl", [row])).dialect == dialect


def test_a_usage_or_event_about_no_item_is_left_out(tmp_path: Path) -> None:
    meta = {"usage": [{"index": 99, "input_tokens": 1}, {"index": -1, "input_tokens": 1}, 7, {"index": "2"}]}
    meta["events"] = [{"type": "compact_boundary", "index": 99}, None]
    trace = the_trace(written(tmp_path / "a.jsonl", [recorded.session(meta=meta)]))
    assert (trace.used, trace.compacted) == ({}, ())


def test_a_whole_file_may_be_one_record_or_a_list_of_them(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(make_recording(3, turns=1, steps=2), indent=2))
    (tmp_path / "b.json").write_text(json.dumps([recorded.session(), recorded.session(id="s2")], indent=1))
    (tmp_path / "c.json").write_text(json.dumps(chat(1)))
    traces, damaged = found(tmp_path)
    assert damaged == []
    assert [trace.id.rpartition("/")[2] for trace in traces] == ["a.json:1", "s1", "s2", "c.json:1"]
    assert traces[0].head["max_completion_tokens"] == 4096
    assert traces[3].items == chat(1)


# one request in a record


def test_requests_of_one_conversation_are_one_trace(tmp_path: Path) -> None:
    trace = the_trace(written(tmp_path / "a.jsonl", recorded.chat_log(3)))
    assert trace.items == chat(3)
    assert trace.head == {"tools": [recorded.TOOL]}
    assert list(trace.used) == [2, 4, 6, 8]
    assert trace.used[4] == RecordedUsage(
        uncached=400, read=3600, output=9, at=1_772_359_440.0, model="gpt-5"
    )
    assert trace.compacted == ()
    assert not DIALECTS["openai_chat"].wire.check(request_of(trace))


def test_conversations_that_are_interleaved_are_kept_apart(tmp_path: Path) -> None:
    one, other = recorded.chat_log(3, ask="one"), recorded.chat_log(3, ask="other")
    mixed = [row for pair in zip(one, other, strict=True) for row in pair]
    traces, damaged = found(written(tmp_path / "a.jsonl", mixed))
    assert damaged == []
    assert [trace.items for trace in traces] == [chat(3, ask="one"), chat(3, ask="other")]


def test_more_conversations_than_are_held_are_all_there(tmp_path: Path) -> None:
    rows = [row for n in range(30) for row in recorded.chat_log(1, ask=f"number {n}")]
    traces, _ = found(written(tmp_path / "a.jsonl", rows))
    assert [trace.items for trace in traces] == [chat(1, ask=f"number {n}") for n in range(30)]


def test_markers_that_move_do_not_part_a_conversation(tmp_path: Path) -> None:
    trace = the_trace(written(tmp_path / "a.jsonl", recorded.claude_log(3)))
    assert trace.dialect == "anthropic"
    assert len(trace.items) == 8
    assert trace.head == {"system": "Be brief.", "max_tokens": 99}
    assert trace.used[1] == RecordedUsage(uncached=3, read=70, written=7, output=5, model="claude-opus-4-6")
    assert list(trace.used) == [1, 3, 5, 7]


@pytest.mark.parametrize("chained", [True, False])
def test_responses_continue_by_their_id_or_by_their_items(tmp_path: Path, *, chained: bool) -> None:
    trace = the_trace(written(tmp_path / "a.jsonl", recorded.responses_log(chained=chained)))
    assert [item["type"] for item in trace.items] == [
        "message", "function_call", "function_call_output", "message",
    ]  # fmt: skip
    assert trace.used == {
        1: RecordedUsage(uncached=40, read=60, output=4, at=1_770_000_000.0, model="gpt-5"),
        3: RecordedUsage(uncached=40, read=60, output=4, at=1_770_000_060.0, model="gpt-5"),
    }
    assert trace.head == {"instructions": "Be brief."}


def test_the_same_question_again_and_again_is_no_conversation(tmp_path: Path) -> None:
    rows = [recorded.chat_log(0)[0] for _ in range(3)]
    for number, row in enumerate(rows):
        row["response"]["id"] = f"r{number}"
    traces, _ = found(written(tmp_path / "a.jsonl", rows))
    assert [trace.items for trace in traces] == [chat(0)] * 3


def test_a_retry_within_a_conversation_adds_to_what_its_call_took(tmp_path: Path) -> None:
    rows = recorded.chat_log(2)
    trace = the_trace(written(tmp_path / "a.jsonl", [rows[0], rows[1], rows[1], rows[2]]))
    assert trace.items == chat(2)
    assert trace.used[4].read == 2 * 3600


def test_a_window_that_slid_is_marked_and_adds_only_what_is_new(tmp_path: Path) -> None:
    rows = recorded.chat_log(6)
    rows[-1]["request"]["messages"] = [*chat(6)[:1], *chat(6)[6:-1]]
    trace = the_trace(written(tmp_path / "a.jsonl", rows))
    assert trace.items == chat(6)
    assert trace.compacted == (12,)


def test_a_summary_in_place_of_the_middle_is_kept_and_marked(tmp_path: Path) -> None:
    rows, whole = recorded.chat_log(6), chat(6)
    summary = {"role": "user", "content": "So far: five files were read."}
    rows[-1]["request"]["messages"] = [*whole[:2], summary, *whole[8:-1]]
    trace = the_trace(written(tmp_path / "a.jsonl", rows))
    assert trace.items == [*whole[:12], summary, *whole[12:]]
    assert trace.compacted == (12,)
    assert not DIALECTS["openai_chat"].wire.check({"model": "m", "messages": trace.items})


def test_results_that_were_cleared_in_place_are_not_there_twice(tmp_path: Path) -> None:
    rows = recorded.chat_log(6)
    messages = rows[-1]["request"]["messages"]
    messages[3] = {**messages[3], "content": "[cleared]"}
    trace = the_trace(written(tmp_path / "a.jsonl", rows))
    assert trace.items == chat(6)
    assert trace.compacted == (12,)


def test_of_two_that_it_could_continue_it_continues_the_longer(tmp_path: Path) -> None:
    rows = recorded.chat_log(2)
    traces, _ = found(written(tmp_path / "a.jsonl", [rows[0], rows[1], rows[0], rows[2]]))
    assert sorted(len(trace.items) for trace in traces) == [3, 7]


def test_few_examples_in_common_make_no_conversation(tmp_path: Path) -> None:
    shots = [{"role": role, "content": f"{role} {n}"} for n in range(2) for role in ("user", "assistant")]
    rows = [{"messages": [*shots, {"role": "user", "content": f"question {n}"}]} for n in range(3)]
    traces, _ = found(written(tmp_path / "a.jsonl", rows))
    assert len(traces) == 3


def test_an_answer_that_was_streamed_is_put_together(tmp_path: Path) -> None:
    deltas = [{"role": "assistant", "content": word} for word in ("Do", "ne.")]
    chunks: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    usage = {"prompt_tokens": 50, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 20}}
    chunks.append({"choices": [], "usage": usage})
    text = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    for response in (chunks, text):
        row = {"request": {"messages": chat(0)[:2]}, "response": response}
        trace = the_trace(written(tmp_path / "a.jsonl", [row]))
        assert trace.items[2]["content"] == "Done."
        assert trace.used == {2: RecordedUsage(uncached=30, read=20, output=2)}


@pytest.mark.parametrize(
    ("moment", "at"),
    [
        ("2026-03-01T10:00:00Z", 1_772_359_200.0), ("2026-03-01T11:00:00+01:00", 1_772_359_200.0),
        ("2026-03-01T10:00:00", 1_772_359_200.0), (1_772_359_200, 1_772_359_200.0),
        (1_772_359_200_000, 1_772_359_200.0), ("yesterday", None), ("0001-01-01T00:00:00+14:00", None),
        (True, None), (-1, None), (10**30, None),
    ],
)  # fmt: skip
def test_a_moment_is_read_however_it_is_written(tmp_path: Path, moment: Any, at: float | None) -> None:
    row = recorded.chat_log(0)[0] | {"timestamp": moment}
    assert the_trace(written(tmp_path / "a.jsonl", [row])).used[2].at == at


# Claude Code, Codex, lamina


def test_claude_code_lines_of_one_answer_are_one_message(tmp_path: Path) -> None:
    traces, damaged = found(written(tmp_path / "a.jsonl", recorded.claude_code()))
    assert damaged == []
    main, side = traces
    sorts = [[b["type"] for b in item["content"]] if isinstance(item["content"], list) else item["content"]
             for item in main.items]  # fmt: skip
    assert sorts == [
        "Mend the parser.", ["thinking", "tool_use", "tool_use"], ["tool_result", "tool_result"],
        "Summary: it was mended.", ["text"],
    ]  # fmt: skip
    assert (main.id, main.model, main.compacted) == ("S", "claude-opus-4-6", (3,))
    sent = {"model": main.model, "max_tokens": 9, "messages": main.items[:-1]}
    assert not DIALECTS["anthropic"].wire.check(sent)
    assert side.id == "S/s1"
    assert [item["role"] for item in side.items] == ["user", "assistant"]


def test_claude_code_lines_about_requests_give_system_text_tools_and_prompts_as_they_were_sent(
    tmp_path: Path,
) -> None:
    traces, damaged = found(written(tmp_path / "a.jsonl", recorded.claude_code_requests()))
    assert damaged == []
    main, side = traces
    assert [trace.head["system"][0]["text"] for trace in traces] == ["You have Bash.", "You have Grep."]
    assert [trace.head["tools"][0]["name"] for trace in traces] == ["Bash", "Grep"]
    assert [item["role"] for item in main.items] == ["user", "system", "assistant", "user", "assistant"]
    prompt, reminders = main.items[0]["content"], main.items[1]["content"]
    assert [block["text"] for block in prompt] == [
        "<system-reminder>Be brief.</system-reminder>\n", "Mend the parser.",
    ]  # fmt: skip
    assert [block["text"] for block in reminders] == ["Today is Monday.\n\nIt rains."]
    assert main.title == "Mend the parser."
    assert (side.items[0]["content"], side.title) == ("Look around.", "Look around.")
    sent = {"model": "claude-opus-5", "max_tokens": 9, **main.head, "messages": main.items[:-1]}
    assert not DIALECTS["anthropic"].wire.check(sent)


def test_claude_code_counts_the_usage_of_an_answer_once(tmp_path: Path) -> None:
    main, side = found(written(tmp_path / "a.jsonl", recorded.claude_code()))[0]
    at = main.used[1].at
    assert main.used == {
        1: RecordedUsage(uncached=3, read=70, written=7, output=40, at=at, model=main.model),
        4: RecordedUsage(uncached=3, read=70, written=7, output=5, at=at, model=main.model),
    }
    assert list(side.used) == [1]


def test_a_side_chain_that_hangs_on_the_main_one_is_still_its_own(tmp_path: Path) -> None:
    rows = recorded.claude_code()
    main, side = found(written(tmp_path / "a.jsonl", rows))[0]
    for row in rows:
        if row.get("uuid") == "s1":
            row["parentUuid"] = "6"
    assert [trace.items for trace in found(written(tmp_path / "a.jsonl", rows))[0]] == [
        main.items,
        side.items,
    ]


def test_claude_code_lines_that_were_copied_count_once(tmp_path: Path) -> None:
    rows = recorded.claude_code()
    main, _ = found(written(tmp_path / "a.jsonl", rows))[0]
    again, _ = found(written(tmp_path / "a.jsonl", [*rows[:9], *rows[4:9], *rows[9:]]))[0]
    assert (again.items, again.used) == (main.items, main.used)


def test_claude_code_sessions_in_one_file_are_kept_apart(tmp_path: Path) -> None:
    rows = []
    for n in range(9):
        rows += [
            {
                **row,
                "sessionId": f"S{n}",
                "uuid": f"{n}-{row['uuid']}",
                "parentUuid": f"{n}-{row['parentUuid']}",
                "requestId": f"request-{n}",
            }
            for row in recorded.claude_code()[4:]
        ]
    traces, _ = found(written(tmp_path / "a.jsonl", rows))
    assert [trace.id for trace in traces] == [x for n in range(9) for x in (f"S{n}", f"S{n}/{n}-s1")]


def test_codex_counts_belong_to_the_answer_before_them(tmp_path: Path) -> None:
    trace = the_trace(written(tmp_path / "rollout-1.jsonl", recorded.codex()))
    assert (trace.id, trace.model, trace.dialect) == ("R", "gpt-5-codex", "openai_responses")
    assert [item["type"] for item in trace.items] == [
        "message", "reasoning", "function_call", "function_call_output", "message", "message", "message",
    ]  # fmt: skip
    at = 1_772_359_320.0
    assert trace.used == {
        1: RecordedUsage(uncached=20, read=80, output=6, at=at, model="gpt-5-codex"),
        4: RecordedUsage(uncached=120, read=80, output=6, at=at, model="gpt-5-codex"),
    }
    assert trace.compacted == (5,)
    assert trace.head == {"instructions": "Be brief."}
    assert not DIALECTS["openai_responses"].wire.check(request_of(trace))


def test_codex_history_that_was_replaced_stands_behind_its_place(tmp_path: Path) -> None:
    kept = [{"role": "user", "content": "kept"}, {"type": "compaction", "encrypted_content": "x"}]
    row = {"type": "compacted", "payload": {"message": "m", "replacement_history": [*kept, 7]}}
    trace = the_trace(written(tmp_path / "a.jsonl", [*recorded.codex()[:6], row]))
    assert trace.items[trace.compacted[0] :] == kept


def test_codex_rollouts_that_were_put_together_are_parted(tmp_path: Path) -> None:
    traces, _ = found(written(tmp_path / "a.jsonl", [*recorded.codex(), *recorded.codex()]))
    assert len(traces) == 2
    assert traces[0].items == traces[1].items


def test_an_export_gives_the_messages_that_it_was_parsed_from(tmp_path: Path) -> None:
    log = DIALECTS["openai_chat"].wire.parse({"messages": chat(2)}).log
    trace = the_trace(written(tmp_path / "a.jsonl", map(encode, log)))
    assert trace.items == chat(2)
    assert (trace.source, trace.dialect) == ("lamina", "openai_chat")


def test_shapes_may_stand_in_one_file(tmp_path: Path) -> None:
    rows = [recorded.session(), *recorded.codex(), *recorded.claude_code(), *recorded.chat_log(1)]
    traces, damaged = found(written(tmp_path / "a.jsonl", rows))
    assert damaged == []
    assert [trace.source for trace in traces] == [
        "made/up", "requests", "claude-code", "claude-code", "codex",
    ]  # fmt: skip


def test_a_resumed_session_counts_what_is_new_in_it(tmp_path: Path) -> None:
    """A newer file of Claude Code begins with the lines of the session that it resumes."""
    first = [
        *recorded.claude_code()[4:10],
        recorded.line("11", "6", "assistant", recorded.piece("D", MENDED)),
    ]
    resumed = [{**row, "sessionId": "S2", "uuid": f"2-{row['uuid']}"} for row in first]
    resumed += [
        {**recorded.line("12", "11", "user", recorded.said("Again.")), "sessionId": "S2"},
        {**recorded.line("13", "12", "assistant", recorded.piece("F", MENDED)), "sessionId": "S2"},
    ]
    written(tmp_path / "a.jsonl", first)
    written(tmp_path / "b.jsonl", resumed)
    written(tmp_path / "c.jsonl", first)
    traces, _ = found(tmp_path)
    assert [trace.id for trace in traces] == ["S", "S2"]
    once, twice = traces
    assert len(once.used) == 2
    assert len(twice.used) == 1
    assert len(twice.copied) == 2
    assert len(twice.items) == len(once.items) + 2
    assert len(read_conversation(twice).calls) == 1


MENDED = {"type": "text", "text": "Mended."}


def test_a_session_has_its_project_its_date_and_its_first_words(tmp_path: Path) -> None:
    rows = [
        {**row, "cwd": "/home/ada/parser", "timestamp": recorded.MOMENT.format(2)}
        for row in recorded.claude_code()[4:10]
    ]
    rows.insert(0, {**rows[0], "uuid": "0", "message": {"role": "user", "content": "<command-name>/x"}})
    [trace], _ = found(written(tmp_path / "a.jsonl", rows))
    assert (trace.project, trace.title) == ("parser", "Mend the parser.")
    assert trace.began is not None


def test_files_that_hold_no_session_are_not_damaged(tmp_path: Path) -> None:
    """The index and the meta files that Claude Code keeps beside its sessions."""
    index = {"version": 1, "entries": [{"sessionId": "S", "fullPath": "x.jsonl"}], "originalPath": "/p"}
    (tmp_path / "sessions-index.json").write_text(json.dumps(index, indent=2))
    (tmp_path / "agent-a1.meta.json").write_text(json.dumps({"agentType": "Explore", "description": "d"}))
    (tmp_path / "MEMORY.md").write_text("# What to remember\n")
    written(tmp_path / "a.jsonl", recorded.claude_code())
    traces, unreadable = found(tmp_path)
    assert [trace.id for trace in traces] == ["S", "S/s1"]
    assert {line.foreign for line in unreadable} == {True}
    assert len(unreadable) == 2


def test_a_trace_is_called_by_the_question_and_not_by_what_is_attached_to_it(tmp_path: Path) -> None:
    texts = ("docs/plan.md:\n\n# Plan", "Paint the fence.")
    content = [{"type": "text", "text": text} for text in texts]
    messages = [{"role": "user", "content": content}, {"role": "assistant", "content": "Done."}]
    row = {"id": "chat", "format": "openai-chat", "model": "gpt-5", "messages": messages}
    trace = the_trace(written(tmp_path / "chat.jsonl", [row]))
    assert trace.title == "Paint the fence."


def test_a_recording_that_begins_in_the_middle_counts_only_what_was_answered_in_it(tmp_path: Path) -> None:
    history = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "1"},
        {"role": "user", "content": "two"},
    ]
    later = [*history, {"role": "assistant", "content": "2"}, {"role": "user", "content": "three"}]
    answer = {"choices": [{"message": {"role": "assistant", "content": "3"}}]}
    recordings: dict[str, list[dict[str, Any]]] = {
        "requests": [{"messages": history}, {"messages": later, **answer}],
        "answers": [{"messages": later, **answer}],
        "conversation": [{"messages": later[:4]}],  # one record without an answer is a whole conversation
    }
    answers: dict[str, list[str]] = {}
    for name, rows in recordings.items():
        trace = the_trace(written(tmp_path / f"{name}.jsonl", rows))
        answers[name] = [call.answer for call in read_conversation(trace).calls]
    assert answers == {"requests": ["2", "3"], "answers": ["3"], "conversation": ["1", "2"]}
