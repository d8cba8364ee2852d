"""Long talks with questions about them: BFCL v4's memory, BEAM, LoCoMo and LongMemEval.

BFCL's questions have exact answers: an answer is in sight if one of its spellings is. The questions of the
others name the messages that they rest on, and each such message must be in sight, whole or for the most
part.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.proof.tasks import Message, Need, Task
from bench.talks import LAST_QUESTION, Sought, find_core, read_bfcl, read_lines

USER = "user"
ASSISTANT = "assistant"
WITHOUT_ANSWER = ("adversarial", "abstention")
"""Questions that the conversation does not answer: nothing has to be in sight for them."""

ASKS_FOR_A_DATE = "temporal"
"""Such a question is put to no model: the answer is the day of a message, and requests do not show it."""


def read_bfcl_memory(folder: Path) -> Iterator[Task]:
    """One task for each talk; its needs are the questions."""
    for talk in read_bfcl(folder):
        end = len(talk.messages)
        needs = [Need(end=end, sought=each, question=each.question) for each in talk.sought]
        yield Task(name=talk.name, messages=talk.messages, needs=needs)


def read_evidence(path: Path) -> Iterator[Task]:
    """One task for each line of a file: `conversation_id`, `turns` and `questions` that name their evidence.

    A line is `{"conversation_id": …, "turns": [{"id", "speaker", "text"}], "questions": [{"q", "answer",
    "evidence": [ids], "category"}]}`. `convert_locomo` and `convert_long_mem_eval` make such lines of the
    files that the authors publish.
    """
    for row in read_lines(path):
        turns = {turn["id"]: turn for turn in row["turns"]}
        user_names = {USER, row["turns"][0]["speaker"]}
        messages = _make_messages(row["turns"], user_names)
        needs = []
        for question in row["questions"]:
            if question["category"] in WITHOUT_ANSWER:
                continue
            for turn_id in dict.fromkeys(question.get("evidence") or ()):
                turn = turns.get(turn_id)
                if turn is None or not turn["text"]:
                    continue
                needs.append(_make_need(question, turn, user_names, len(messages)))
        yield Task(name=str(row["conversation_id"]), messages=messages, needs=needs)


def _make_messages(turns: list[dict[str, Any]], user_names: set[str]) -> list[Message]:
    messages: list[Message] = []
    for turn in turns:
        role = USER if turn["speaker"] in user_names else ASSISTANT
        messages.append({"role": role, "content": turn["text"] or "-"})
    while messages[-1]["role"] != USER:
        messages.pop()
    messages.append({"role": USER, "content": LAST_QUESTION})
    return messages


def _make_need(question: dict[str, Any], turn: dict[str, Any], user_names: set[str], end: int) -> Need:
    sort = str(question["category"])
    text = turn["text"]
    if sort.startswith(("instruction", "preference")):
        text = find_core(text)  # the wish itself; the rest of a long message is not needed
    voice = USER if turn["speaker"] in user_names else ASSISTANT
    sought = Sought(sort=f"{sort}, {voice}", spellings=(text,), runs=True)
    answer: tuple[str, ...] = ()
    if question.get("answer") is not None and sort != ASKS_FOR_A_DATE:
        answer = (str(question["answer"]),)
    return Need(end=end, sought=sought, question=question["q"], answer=answer, voice=voice)


def convert_locomo(path: Path) -> Iterator[dict[str, Any]]:
    """The conversations of `locomo10.json`, as its authors publish it, in the form of `read_evidence`."""
    categories = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
    for sample in json.loads(path.read_text(encoding="utf-8")):
        conversation = sample["conversation"]
        turns = []
        number = 1
        while f"session_{number}" in conversation:
            turns += [
                {"id": turn["dia_id"], "speaker": turn["speaker"], "text": turn["text"]}
                for turn in conversation[f"session_{number}"]
            ]
            number += 1
        questions = [
            {
                "q": each["question"],
                "answer": each.get("answer"),
                "evidence": each.get("evidence") or [],
                "category": categories.get(each["category"], str(each["category"])),
            }
            for each in sample["qa"]
        ]
        yield {"conversation_id": sample["sample_id"], "turns": turns, "questions": questions}


def convert_long_mem_eval(path: Path) -> Iterator[dict[str, Any]]:
    """The conversations of `longmemeval_s.json`: one question each, about turns that have the answer."""
    for sample in json.loads(path.read_text(encoding="utf-8")):
        turns = []
        evidence = []
        for session, said in enumerate(sample["haystack_sessions"]):
            for at, turn in enumerate(said):
                turn_id = f"{session}:{at}"
                turns.append({"id": turn_id, "speaker": turn["role"], "text": turn["content"]})
                if turn.get("has_answer"):
                    evidence.append(turn_id)
        is_answered = not sample["question_id"].endswith("_abs")
        question = {
            "q": sample["question"],
            "answer": sample["answer"],
            "evidence": evidence,
            "category": sample["question_type"] if is_answered else "abstention",
        }
        yield {"conversation_id": sample["question_id"], "turns": turns, "questions": [question]}
