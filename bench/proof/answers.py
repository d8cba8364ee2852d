"""Right answers of a model after what each policy sends: rows, answers, a table. Each step is a file.

    python -m bench.proof answers rows bfcl-memory --out rows.jsonl.gz      what the model would be sent
    python -m bench.proof answers ask rows.jsonl.gz --model FILE.gguf --out answers.jsonl
    python -m bench.proof answers ask rows.jsonl.gz --server http://127.0.0.1:8000 --out answers.jsonl
    python -m bench.proof answers table answers.jsonl

Answers are greedy, and right or wrong by their letters: one of the right spellings stands in the answer, or
all of them where a question asks for several. F1 compares their words with those of the right answer, which
is what LoCoMo is scored by: its answers are phrases, and few are repeated to the letter.

Under `lamina+recall` the model first chooses, in a format that it cannot leave, whether to call recall, with
which key and which text to find. What comes back is put before the question in a new chat. If the choice
stayed in the chat, a small model would go on in its format: 57 to 81 % of its answers were JSON then.

A run that was ended goes on where it stopped: what `--out` has is not asked again. A row has everything, so
it can be asked elsewhere.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec

from bench.arguments import split_list, split_numbers
from bench.proof.follow import FULL, OWN, WITH_RECALL, FollowedTask, SentRequest, follow
from bench.proof.parts import DATA, PARTS
from bench.proof.recalling import find_keys
from bench.proof.rows import estimate_shares, percent_text
from bench.proof.tasks import Task, message_words
from bench.talks import QUESTION_FOR_A_MODEL, plain_words
from lamina.core.values import Ledger
from lamina.costs.logs.model_calls import CHAT
from lamina.dialects import DIALECTS
from lamina.errors import BadInput, NotFound
from lamina.fitting.recalls import answer_recall_text, recall_text
from lamina.segments import user

POLICIES = "none,drop_oldest,sliding,no_reminders,lamina"
ASKED_PARTS = ("variables", "bfcl-memory", "locomo")
"""Parts whose questions a model can be asked."""

MOST_TOKENS = 40
"""Tokens of an answer."""

MOST_FOUND = 4_000
"""Characters of what a recall brings back: a small model should not drown in it."""

MOST_OFFERED = 8
"""Keys that the format offers."""

SYSTEM = "You are a helpful assistant. Earlier messages may be shortened or stand in a digest."
RECALL_SYSTEM = (
    "What was shortened can be brought back. Before you answer, reply with JSON: "
    '{"recall": key, "find": text} to read the places where a text occurs in what the key stands for, '
    'or {"recall": "none"} if you can answer.'
)
NOTHING = "none"
ARTICLES = frozenset(("a", "an", "the"))

Chat = list[dict[str, str]]
Ask = Callable[[Chat, dict[str, Any] | None], str]
"""Sends a chat and returns the answer. The second argument is a JSON schema that it must follow, or None."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question with its right spellings, and what the model is sent before it.

    `every`: all spellings have to stand in the answer. `offers` has the text behind each key.
    """

    text: str
    messages: list[tuple[str, str]] = []
    offers: dict[str, str] = {}
    right: tuple[str, ...]
    every: bool = False
    in_sight: bool = False


class AnswerRow(msgspec.Struct, frozen=True, kw_only=True):
    """The questions of one task under one policy."""

    part: str
    policy: str
    window: int
    task: str
    questions: list[Question]

    @property
    def name(self) -> str:
        return f"{self.part} {self.policy} {self.window} {self.task}"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer. `recalled` is what the model asked for; empty if it did not. `f1` is of its words."""

    row: str
    part: str
    policy: str
    window: int
    task: str
    question: str
    text: str
    right: bool
    in_sight: bool
    f1: float
    recalled: str = ""


def answer_main(arguments: list[str]) -> int:
    options = _options(arguments)
    return int(options.run(options))


# Rows.


def write_rows(options: argparse.Namespace) -> int:
    """Write the rows of these parts; each task that is sent the same under several windows stands once."""
    count = 0
    with gzip.open(options.out, "wb") as file:
        for name in options.parts:
            part = PARTS[name]
            tasks = list(part.tasks(options.data))[: options.tasks]
            for row in _make_rows(name, tasks, options.windows or part.windows, options.policies):
                file.write(msgspec.json.encode(row) + b"\n")
                count += len(row.questions)
    print(f"{count:,} questions in {options.out}")
    return 0


def _make_rows(
    part: str, tasks: Sequence[Task], windows: Sequence[int], policies: Sequence[str]
) -> Iterator[AnswerRow]:
    for at, window in enumerate(windows):
        for policy in policies:
            if policy == FULL and at:
                continue  # the full context is the same whatever the window is
            for task in tasks:
                yield from _rows_of_task(part, task, policy, window)


def _rows_of_task(part: str, task: Task, policy: str, window: int) -> Iterator[AnswerRow]:
    followed = follow(task, policy, window, "anthropic", with_reader=False)
    row = AnswerRow(
        part=part,
        policy=policy,
        window=0 if policy == FULL else window,
        task=task.name,
        questions=list(_questions(task, followed, with_offers=False)),
    )
    yield row
    if policy.partition("@")[0] == OWN:
        # Also where nothing was cut and nothing is offered: a table counts only questions that every row has.
        questions = list(_questions(task, followed, with_offers=True))
        yield msgspec.structs.replace(row, policy=f"{policy}{WITH_RECALL}", questions=questions)


def _questions(task: Task, followed: FollowedTask, *, with_offers: bool) -> Iterator[Question]:
    """The questions of a task; needs that share a question are one, which asks for all of their answers.

    A message that a question rests on is no answer: such a need has one of its own, or is not asked.
    """
    by_question: dict[str, list[tuple[str, ...]]] = {}
    seen_by_question: dict[str, bool] = {}
    requests: dict[str, SentRequest] = {}
    for need, seen, request in zip(task.needs, followed.outcomes[0].seen, followed.requests, strict=True):
        spellings = need.answer
        if not spellings and not need.sought.runs:
            spellings = need.sought.spellings
        if not spellings:
            continue
        by_question.setdefault(need.question, []).append(spellings)
        requests[need.question] = request
        seen_by_question[need.question] = seen_by_question.get(need.question, True) and seen
    for text, answers in by_question.items():
        different = list(dict.fromkeys(answers))
        every = len(different) > 1
        right = tuple(each[0] for each in different) if every else different[0]
        messages = [(message["role"], message_words(message)) for message in requests[text].messages[:-1]]
        yield Question(
            text=text,
            messages=messages,
            offers=_read_offers(task, requests[text]) if with_offers else {},
            right=right,
            every=every,
            in_sight=seen_by_question[text],
        )


def _read_offers(task: Task, request: SentRequest) -> dict[str, str]:
    log = DIALECTS[CHAT].wire.parse({"messages": task.messages}).log
    offers = {}
    for key in find_keys(request.messages)[:MOST_OFFERED]:
        try:
            offers[key] = recall_text(log, key, ledger=request.ledger or Ledger()).text
        except NotFound:
            continue
    return offers


# Answers.


def ask_rows(options: argparse.Namespace) -> int:
    """Ask every question that `--out` has no answer to, row by row."""
    done = {(each.row, each.question) for each in _read_answers(options.out)}
    rows = list(_read_rows(options.rows))
    total = sum(len(row.questions) for row in rows)
    count = len(done)
    end = time.monotonic() + options.seconds
    with _open_model(options) as ask, _open_to_append(options.out) as file:
        for row in rows:
            for question in row.questions[:: options.every]:
                if (row.name, question.text) in done:
                    continue
                if time.monotonic() > end:
                    print(f"\n{count:,} of {total:,} answers; run it again to go on")
                    return 0
                file.write(msgspec.json.encode(answer_question(row, question, ask)) + b"\n")
                file.flush()
                count += 1
                print(f"\r{count:,} of {total:,} answers", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return print_table(options.out)


@contextmanager
def _open_to_append(path: Path) -> Iterator[IO[bytes]]:
    """A file of lines, to write more of them.

    A run that was killed may have left half a line without its end. The next line must not become part of it.
    """
    with path.open("a+b") as file:
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(size - 1)
            if file.read(1) != b"\n":
                file.write(b"\n")
        yield file


def answer_question(row: AnswerRow, question: Question, ask: Ask) -> Answer:
    """One answer, after a recall if one is offered and the model wants it."""
    asked = QUESTION_FOR_A_MODEL.format(question=question.text)
    recalled = ""
    if question.offers:
        choice = ask(
            _write_chat(question, f"{SYSTEM} {RECALL_SYSTEM}", asked), recall_schema(question.offers)
        )
        recalled, found = serve_recall(choice, question.offers)
        if recalled:
            asked = f"{found}\n\n{asked}"
    text = ask(_write_chat(question, SYSTEM, asked), None)
    return Answer(
        row=row.name,
        part=row.part,
        policy=row.policy,
        window=row.window,
        task=row.task,
        question=question.text,
        text=text,
        right=is_right(text, question),
        in_sight=question.in_sight,
        f1=word_f1(text, question),
        recalled=recalled,
    )


def _write_chat(question: Question, system: str, asked: str) -> Chat:
    """What the model is sent: what stands before the question, with the question at its end."""
    said = [{"role": role, "content": text} for role, text in question.messages]
    return [{"role": "system", "content": system}, *said, {"role": "user", "content": asked}]


def recall_schema(offers: Iterable[str]) -> dict[str, Any]:
    """The only thing that a model can say before it answers."""
    return {
        "type": "object",
        "properties": {
            "recall": {"type": "string", "enum": [*offers, NOTHING]},
            "find": {"type": "string", "maxLength": 40},
        },
        "required": ["recall", "find"],
        "additionalProperties": False,
    }


def serve_recall(choice: str, offers: dict[str, str]) -> tuple[str, str]:
    """What the model asked for, and what lamina's recall tool answers to it."""
    try:
        arguments = json.loads(choice)
        key, find = str(arguments["recall"]), str(arguments.get("find") or "")
    except (ValueError, KeyError, TypeError):
        return "", ""
    if key not in offers:
        return "", ""
    log = [user(offers[key], key=key)]
    text = answer_recall_text(log, key, ledger=Ledger(), find=find)
    return f"{key} {find}".strip(), text[:MOST_FOUND]


def is_right(text: str, question: Question) -> bool:
    """Whether the answer has one of the right spellings, or all of them, as whole words."""
    words = f" {plain_words(text)} "
    found = [f" {plain_words(spelling)} " in words for spelling in question.right]
    return all(found) if question.every else any(found)


def word_f1(text: str, question: Question) -> float:
    """How well the words agree with a right answer, from 0 to 1; with the best one where there are several.

    Order, articles and punctuation count for nothing. Words that ought to be there and are not weigh as much
    as words that are there and ought not to be.
    """
    golds = [" ".join(question.right)] if question.every else question.right
    return max(_compare_words(_list_telling_words(text), _list_telling_words(gold)) for gold in golds)


def _list_telling_words(text: str) -> list[str]:
    return [word for word in plain_words(text).split() if word not in ARTICLES]


def _compare_words(said: Sequence[str], gold: Sequence[str]) -> float:
    shared = (Counter(said) & Counter(gold)).total()
    if not shared:
        return 0.0
    return 2 * shared / (len(said) + len(gold))


@contextmanager
def _open_model(options: argparse.Namespace) -> Iterator[Ask]:
    if options.server:
        yield _asker(options.server.rstrip("/").removesuffix("/v1"))
        return
    if not options.model:
        raise BadInput("no model", place="answers", hint="give --model FILE.gguf or --server URL")
    from lamina.testing.model_server import run_model_server  # noqa: PLC0415 - only with a file

    with run_model_server(window=options.context, path=options.model) as server:
        yield _asker(server.url)


def _asker(address: str) -> Ask:
    def ask(chat: Chat, schema: dict[str, Any] | None) -> str:
        body: dict[str, Any] = {
            "model": "local",
            "messages": chat,
            "temperature": 0,
            "max_tokens": MOST_TOKENS,
            "cache_prompt": True,
        }
        if schema is not None:
            named_schema = {"name": "recall", "schema": schema, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": named_schema}
            body["max_tokens"] = 2 * MOST_TOKENS
        request = urllib.request.Request(  # noqa: S310 - the address that the user gave
            f"{address}/v1/chat/completions",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=3_600) as reply:  # noqa: S310 - as above
            return str(json.load(reply)["choices"][0]["message"]["content"] or "")

    return ask


# The table.


def table(options: argparse.Namespace) -> int:
    return max(print_table(path) for path in options.answers)


def print_table(path: Path) -> int:
    """Print right answers by policy and window, over the questions that every row of a part has."""
    by_part: dict[str, list[Answer]] = {}
    for answer in _read_answers(path):
        by_part.setdefault(answer.part, []).append(answer)
    for part, answers in by_part.items():
        for line in _table_lines(part, answers):
            print(line)
    return 0


def _table_lines(part: str, answers: Sequence[Answer]) -> Iterator[str]:
    groups: dict[tuple[int, str], dict[tuple[str, str], Answer]] = {}
    for answer in answers:
        groups.setdefault((answer.window, answer.policy), {})[answer.task, answer.question] = answer
    shared = set.intersection(*(set(group) for group in groups.values()))
    keys = sorted(shared)
    yield f"\n{part}: {len(keys)} questions that every row has"
    yield ""
    yield "| window | policy | right | F1 | in sight | recalls |"
    yield "|--:|---|--:|--:|--:|--:|"
    for (window, policy), group in sorted(groups.items()):
        chosen = [group[key] for key in keys]
        right = estimate_shares([(int(each.right), 1) for each in chosen])
        f1 = estimate_shares([(each.f1, 1) for each in chosen])
        seen = sum(each.in_sight for each in chosen) / max(len(chosen), 1)
        recalls = sum(bool(each.recalled) for each in chosen)
        cells = [
            window or "all",
            policy,
            percent_text(right),
            percent_text(f1),
            f"{100 * seen:.1f} %",
            recalls,
        ]
        yield f"| {' | '.join(map(str, cells))} |"


def _read_rows(path: Path) -> Iterator[AnswerRow]:
    decode = msgspec.json.Decoder(AnswerRow).decode
    with gzip.open(path, "rb") as file:
        for line in file:
            yield decode(line)


def _read_answers(path: Path) -> Iterator[Answer]:
    """The answers of a file. A last line that was cut off when a run was ended is left out."""
    if not path.exists():
        return
    decode = msgspec.json.Decoder(Answer).decode
    with path.open("rb") as file:
        for line in file:
            try:
                yield decode(line)
            except msgspec.DecodeError:
                continue


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.proof answers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    steps = parser.add_subparsers(required=True)
    rows = steps.add_parser("rows", help="what a model would be sent")
    rows.set_defaults(run=write_rows)
    rows.add_argument("parts", nargs="+", choices=ASKED_PARTS)
    rows.add_argument("--out", type=Path, required=True, metavar="FILE.gz")
    rows.add_argument("--data", type=Path, default=DATA, metavar="FOLDER")
    rows.add_argument("--windows", type=split_numbers, default=[], metavar="N,...")
    rows.add_argument("--policies", type=split_list, default=split_list(POLICIES), metavar="P,...")
    rows.add_argument("--tasks", type=int, default=None, metavar="N", help="only the first N tasks")
    asked = steps.add_parser("ask", help="ask a model")
    asked.set_defaults(run=ask_rows)
    asked.add_argument("rows", type=Path)
    asked.add_argument("--model", type=Path, metavar="FILE.gguf", help="run by llama.cpp on the processor")
    asked.add_argument(
        "--server", default="", metavar="URL", help="one that speaks OpenAI's chat completions"
    )
    asked.add_argument("--out", type=Path, required=True, metavar="FILE")
    asked.add_argument("--context", type=int, default=20_000, metavar="N", help="window of --model")
    asked.add_argument("--every", type=int, default=1, metavar="N", help="only each N-th question of a row")
    asked.add_argument("--seconds", type=float, default=float("inf"), metavar="N")
    printed = steps.add_parser("table", help="right answers by policy")
    printed.set_defaults(run=table)
    printed.add_argument("answers", type=Path, nargs="+")
    return parser.parse_args(arguments)
