"""The proof on shared benchmarks: what it counts, on tasks small enough to count by hand."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.proof.__main__ import main
from bench.proof.answers import (
    AnswerRow,
    Question,
    answer_main,
    answer_question,
    serve_recall,
)
from bench.proof.follow import FULL, TaskOutcome, follow
from bench.proof.gold_paths import read_gold_calls, read_gold_games
from bench.proof.memory_talks import convert_locomo, read_evidence
from bench.proof.parts import PARTS, get_data
from bench.proof.recalling import find_keys, telling_words
from bench.proof.rows import list_worse, sum_rows, table_text
from bench.proof.tasks import READ, SAID, Need, Task, make_call, make_result
from bench.proof.variables import LINKS, make_tasks
from bench.talks import Sought

RULES = "anthropic"


def make_talk(words_each: int) -> Task:
    """The user names a colour first, then talks of other things; at the end the colour is needed."""
    messages: list[dict[str, Any]] = []
    for turn in range(20):
        text = "My boat is vermilion." if turn == 0 else "The sea was calm today. " * (words_each // 5)
        messages.append({"role": "user", "content": text})
        messages.append({"role": "assistant", "content": "I see."})
    messages.append({"role": "user", "content": "Which colour has my boat?"})
    sought = Sought(sort="answers", spellings=("vermilion",))
    need = Need(end=len(messages), sought=sought, question="Which colour has my boat?")
    return Task(name="boat", messages=messages, needs=[need])


def test_a_window_that_slides_hides_what_was_said_first_and_the_full_context_does_not() -> None:
    task = make_talk(100)
    assert follow(task, FULL, 1_000, RULES).outcomes[0].seen == (True,)
    sliding = follow(task, "sliding", 1_000, RULES).outcomes[0]
    assert sliding.seen == (False,)
    assert sliding.cuts > 0
    assert sliding.refused == 0


def test_each_question_is_asked_by_itself_and_brings_back_what_it_is_about() -> None:
    facts = [f"Warehouse {n} stands in Kel{n}mora and holds {n * 17 % 90} crates of tea." for n in range(60)]
    messages: list[dict[str, Any]] = []
    for fact in facts:
        messages += [{"role": "user", "content": fact}, {"role": "assistant", "content": "Noted."}]
    messages.append({"role": "user", "content": "One question."})
    sought = Sought(sort="facts", spellings=(facts[20],))
    questions = ["How many crates are in Kel20mora?", "How many crates are in Kel30mora?"]
    needs = [Need(end=len(messages), sought=sought, question=question) for question in questions]
    task = Task(name="tea", messages=messages, needs=needs)
    followed = follow(task, "lamina", 1_000, RULES, with_reader=False)
    assert followed.outcomes[0].seen == (True, False)
    last_messages = [request.messages[-1]["content"] for request in followed.requests]
    assert [text.partition(" Answer")[0] for text in last_messages] == questions
    assert follow(task, "no_reminders", 1_000, RULES).outcomes[0].seen == (False, False)


def test_a_request_that_is_too_long_shows_nothing() -> None:
    task = make_talk(100)
    (outcome,) = follow(task, "provider_clearing", 1_000, RULES).outcomes
    assert outcome.peak > 1_000
    assert outcome.refused > 0
    assert outcome.seen == (False,)


def test_a_reader_finds_with_recall_what_lamina_folded_and_pays_for_it() -> None:
    task = next(task for task in make_tasks(2) if task.name.startswith("session"))
    plain, with_recall = follow(task, "lamina", 2_500, RULES).outcomes
    assert (plain.policy, with_recall.policy) == ("lamina", "lamina+recall")
    assert plain.refused == 0
    assert sum(with_recall.seen) >= sum(plain.seen)
    assert not all(plain.seen)
    assert with_recall.recalls > 0
    assert with_recall.cost > plain.cost


def test_the_provider_clears_all_but_the_last_three_results() -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Read all."}]
    for step in range(8):
        messages.append(make_call(step, "read", "{}"))
        messages.append(make_result(step, f"secret{step} " + "line of the file " * 40))
    need = Need(end=len(messages), sought=Sought(sort="files", spellings=("secret7",)))
    followed = follow(Task(name="files", messages=messages, needs=[need]), "provider_clearing", 1_000, RULES)
    text = json.dumps(followed.requests[0].messages)
    shown = [step for step in range(8) if f"secret{step}" in text]
    assert shown[-3:] == [5, 6, 7]
    assert 0 not in shown


def test_variables_are_the_same_every_time_and_all_links_are_in_the_conversation() -> None:
    first, second = list(make_tasks(2)), list(make_tasks(2))
    assert first == second
    assert [{need.voice for need in task.needs} for task in first] == [{SAID}, {READ}]
    for task in first:
        assert len(task.needs) == LINKS
        assert follow(task, FULL, 2_000, RULES).outcomes[0].seen == (True,) * LINKS


def test_a_gold_call_needs_what_stood_before_it_and_nothing_else(tmp_path: Path) -> None:
    messages = [
        {"role": "user", "content": "Mail the invoice to Ada."},
        make_call(0, "list_files", "{}"),
        make_result(0, "invoice-77.pdf, notes.txt"),
        make_call(1, "mail", json.dumps({"file": "invoice-77.pdf", "to": "Ada", "subject": "Greetings"})),
        make_result(1, "sent"),
    ]
    path = tmp_path / "calls.jsonl"
    path.write_text(json.dumps({"id": "t", "sort": "arguments", "messages": messages}) + "\n", "utf-8")
    (task,) = read_gold_calls(path)
    assert [(need.sought.spellings, need.voice, need.end) for need in task.needs] == [
        (("invoice-77.pdf",), READ, 3),
        (("Ada",), SAID, 3),
    ]


def test_tau_is_converted_with_ids_of_its_own(tmp_path: Path) -> None:
    call = {"id": "same", "type": "function", "function": {"name": "find", "arguments": '{"id": "mia_li"}'}}
    said = {"role": "user", "content": "I am mia_li."}
    asked = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "same", "name": "find", "content": "found"}
    path = tmp_path / "gpt-4o-airline.json"
    runs = [{"task_id": 3, "trial": 1, "traj": [said, asked, result, asked, result]}]
    path.write_text(json.dumps(runs), "utf-8")
    get_data([str(path)], tmp_path)
    (task,) = PARTS["tau"].tasks(tmp_path)
    assert task.name == "3-1"
    assert [message.get("tool_call_id") for message in task.messages[2::2]] == ["call_1", "call_3"]
    assert [need.sought.spellings for need in task.needs] == [("mia_li",), ("mia_li",)]


def test_long_mem_eval_asks_one_question_about_turns_that_have_the_answer(tmp_path: Path) -> None:
    session = [
        {"role": "user", "content": "I got a cat, Soot.", "has_answer": True},
        {"role": "assistant", "content": "A good name."},
    ]
    sample = {
        "question_id": "q1", "question_type": "single-session-user", "question": "What is my cat called?",
        "answer": "Soot", "haystack_sessions": [session, session[1:]],
    }  # fmt: skip
    path = tmp_path / "longmemeval_s.json"
    path.write_text(json.dumps([sample, sample | {"question_id": "q2_abs"}]), "utf-8")
    get_data([str(path)], tmp_path)
    answered, unanswerable = PARTS["long-mem-eval"].tasks(tmp_path)
    assert [need.sought.spellings for need in answered.needs] == [("I got a cat, Soot.",)]
    assert unanswerable.needs == []


def test_an_action_of_a_game_names_things(tmp_path: Path) -> None:
    messages = [
        {"role": "user", "content": "Boil water. You see a glass cup and a sink."},
        make_call(0, "act", json.dumps({"action": "move glass cup to sink"})),
        make_result(0, "You move it."),
    ]
    path = tmp_path / "games.jsonl"
    path.write_text(json.dumps({"id": "boil-0", "sort": "things", "messages": messages}) + "\n", "utf-8")
    (task,) = read_gold_games(path)
    assert [need.sought.spellings for need in task.needs] == [("glass cup",), ("sink",)]


def test_locomo_in_its_own_form_becomes_tasks(tmp_path: Path) -> None:
    sample = {
        "sample_id": "c1",
        "conversation": {
            "speaker_a": "Ana",
            "speaker_b": "Bo",
            "session_1_date_time": "1 May",
            "session_1": [
                {"speaker": "Ana", "dia_id": "D1:1", "text": "I adopted a grey cat."},
                {"speaker": "Bo", "dia_id": "D1:2", "text": "What is its name?"},
            ],
            "session_2": [{"speaker": "Ana", "dia_id": "D2:1", "text": "She is called Soot."}],
        },
        "qa": [
            {"question": "What is the cat called?", "answer": "Soot", "evidence": ["D2:1"], "category": 4}
        ],
    }
    source = tmp_path / "locomo10.json"
    source.write_text(json.dumps([sample]), "utf-8")
    lines = tmp_path / "locomo.jsonl"
    lines.write_text("\n".join(json.dumps(row) for row in convert_locomo(source)), "utf-8")
    (task,) = read_evidence(lines)
    assert [message["role"] for message in task.messages] == ["user", "assistant", "user", "user"]
    (need,) = task.needs
    assert (need.sought.sort, need.sought.spellings) == ("single-hop, user", ("She is called Soot.",))
    assert need.answer == ("Soot",)


def test_a_model_is_asked_once_for_what_rests_on_several_messages_and_never_for_a_day(tmp_path: Path) -> None:
    turns = [
        {"id": "1", "speaker": "Ana", "text": "I began to paint boats."},
        {"id": "2", "speaker": "Bo", "text": "And I took up fencing, in a hall near the river."},
        {"id": "3", "speaker": "Ana", "text": "Boats in oil, I should say."},
    ]
    questions = [
        {"q": "What does Ana paint?", "answer": "boats", "evidence": ["1", "3"], "category": "multi-hop"},
        {"q": "When did Bo begin?", "answer": "1 May", "evidence": ["2"], "category": "temporal"},
        {"q": "How many sports?", "answer": 1, "evidence": ["2"], "category": "single-hop"},
    ]
    path = tmp_path / "locomo.jsonl"
    path.write_text(json.dumps({"conversation_id": "c", "turns": turns, "questions": questions}), "utf-8")
    out = tmp_path / "rows.jsonl.gz"
    arguments = ["rows", "locomo", "--data", str(tmp_path), "--out", str(out), "--windows", "4000"]
    assert answer_main([*arguments, "--policies", "none,lamina"]) == 0
    row, own, with_recall = [json.loads(line) for line in gzip.decompress(out.read_bytes()).splitlines()]
    assert with_recall == own | {"policy": "lamina+recall"}  # nothing was cut, and it is asked all the same
    asked = {each["text"]: each["right"] for each in row["questions"]}
    assert asked == {"What does Ana paint?": ["boats"], "How many sports?": ["1"]}
    assert not any(each["every"] for each in row["questions"])


def test_a_reader_searches_for_names_first_and_digests_come_before_other_keys() -> None:
    assert telling_words("Where did Ana buy the grey umbrella?")[:2] == ["Ana", "umbrella"]
    messages = [
        {"role": "user", "content": '<digest recall="fold-1">…</digest>'},
        {"role": "tool", "content": '[trimmed: read a.py · recall("kabc")]'},
    ]
    assert find_keys(messages) == ["fold-1", "kabc"]


def make_outcome(task: str, policy: str, seen: tuple[bool, ...], cost: float) -> TaskOutcome:
    return TaskOutcome(
        task=task, policy=policy, window=4_000, rules=RULES, cost=cost, calls=1, cuts=0, refused=0, recalls=0,
        peak=1, seen=seen,
    )  # fmt: skip


def test_intervals_are_paired_by_task() -> None:
    """A policy that is ahead by one need in every task is ahead for certain, however much tasks differ."""
    outcomes = []
    tasks = []
    needs = [Need(end=1, sought=Sought(sort=sort, spellings=(sort,)), question=sort) for sort in ("a", "b")]
    for number in range(10):
        easy = number % 2 == 0
        name = f"t{number}"
        tasks.append(Task(name=name, messages=[], needs=needs))
        outcomes.append(make_outcome(name, FULL, (True, True), 2.0))
        outcomes.append(make_outcome(name, "sliding", (easy, False), 1.0))
        outcomes.append(make_outcome(name, "lamina", (easy, True), 3.0))
    rows = {row.policy: row for row in sum_rows("p", outcomes, tasks)}
    own, sliding, full = rows["lamina"], rows["sliding"], rows[FULL]
    assert own.in_sight.low < 0.75 < own.in_sight.high
    assert (sliding.behind.low, sliding.behind.high) == pytest.approx((0.5, 0.5))
    assert (own.cost, sliding.cost) == (1.5, 0.5)
    assert (own.whole.mean, sliding.whole.mean) == (0.75, 0.25)  # of questions, not of tasks
    assert own.by_sort == {"a": (5, 10), "b": (10, 10)}
    text = table_text(list(rows.values()))
    assert "| lamina | 75.0 %" in text
    assert "| in sight, % | a | b |" in text
    assert "| lamina | 50.0 | 100.0 |" in text
    assert [full.behind.mean, full.behind.high < 0] == [-0.25, True]
    (worse,) = list_worse(list(rows.values()))
    assert worse.startswith("p, 4,000: none shows more, and costs 0.67 times as much: lamina -25.0 [")


def test_a_model_recalls_in_a_format_that_it_cannot_leave_and_lamina_answers() -> None:
    offers = {"fold-1": "We met in Porto. The password of the boat is heron. " + "Nothing else. " * 400}
    question = Question(
        text="What is the password?", right=("heron",), messages=[("user", "Hello.")], offers=offers
    )
    row = AnswerRow(part="p", policy="lamina+recall", window=1, task="t", questions=[question])
    chats: list[list[dict[str, str]]] = []

    def ask(chat: list[dict[str, str]], schema: dict[str, Any] | None) -> str:
        chats.append(list(chat))
        if schema is not None:
            assert schema["properties"]["recall"]["enum"] == ["fold-1", "none"]
            return '{"recall": "fold-1", "find": "password"}'
        return "It is heron." if "heron" in chat[-1]["content"] else "I do not know."

    answer = answer_question(row, question, ask)
    assert (answer.right, answer.recalled) == (True, "fold-1 password")
    choosing, answering = chats
    assert choosing[1] == answering[1] == {"role": "user", "content": "Hello."}
    assert [message["role"] for message in answering] == ["system", "user", "user"]  # the choice is not in it
    assert "JSON" in choosing[0]["content"]
    assert "JSON" not in answering[0]["content"]
    assert serve_recall('{"recall": "none", "find": ""}', offers) == ("", "")
    assert serve_recall("no JSON", offers) == ("", "")


def test_the_quick_form_runs_and_says_which_versions_it_is_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.json"
    monkeypatch.setattr(sys, "argv", ["proof", "--quick", "--json", str(file)])
    assert main() == 0
    facts = json.loads(file.read_text("utf-8"))
    assert [row["policy"] for row in facts["rows"]] == [FULL, "sliding", "lamina", "lamina+recall"]
    assert set(facts["versions"]) >= {"lamina", "commit", "python", "machine", "intervals"}
    assert facts["parts"]["variables"]["tuned on it"] == PARTS["variables"].tuned_on
    printed = capsys.readouterr().out
    assert "variables, window 4,000" in printed
    assert all(sentence in printed for sentence in [PARTS["variables"].tuned_on, *facts["worse"]])
