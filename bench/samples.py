"""Small made-up inputs for `--quick`: each bench runs on them in a second or two, without any data.

Such a run shows that a bench works. Its figures say nothing about lamina.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lamina.core.build import build
from lamina.dialects import DIALECTS
from lamina.testing import generate_session

QUICK_HELP = "a run of a second or two on made-up data, to see that the bench works"

MODELS = {"openai-chat": "gpt-5", "anthropic-messages": "claude-sonnet-4-5"}
FORMATS = {"openai-chat": "openai_chat", "anthropic-messages": "anthropic"}
BEGUN = datetime(2026, 1, 2, 9, tzinfo=UTC)
CHARACTERS = 4
"""Characters for a token in the usage that is made up."""


@contextmanager
def sample_sessions(*, sessions: int = 2, turns: int = 4) -> Iterator[Path]:
    """A file of recorded sessions in two formats, each with the usage of its calls."""
    with TemporaryDirectory(prefix="lamina-bench-") as folder:
        path = Path(folder) / "sessions.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for seed in range(sessions):
                for form in FORMATS:
                    file.write(json.dumps(recorded_session(seed, form, turns=turns)) + "\n")
        yield path


def recorded_session(seed: int, form: str, *, turns: int) -> dict[str, Any]:
    """One session: its messages, and what a provider with a prefix cache would have reported."""
    request = DIALECTS[FORMATS[form]].wire.render(build(generate_session(seed, turns=turns)))
    messages = request["messages"]
    record: dict[str, Any] = {"id": f"{form}-{seed}", "format": form, "messages": messages}
    if "system" in request:
        record["system"] = request["system"]
    record["meta"] = {"model": MODELS[form], "usage": list(reported_usage(messages))}
    return record


def reported_usage(messages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """What each call read, found cached and wrote: everything that the call before it had sent was cached."""
    cached = 0
    characters = 0
    for index, message in enumerate(messages):
        size = len(json.dumps(message))
        sent = characters // CHARACTERS
        characters += size
        if index == 0 or message["role"] != "assistant":
            continue
        yield {
            "index": index,
            "input_tokens": sent - cached,
            "cache_read": cached,
            "cache_write": 0,
            "output_tokens": size // CHARACTERS,
            "ts": (BEGUN + timedelta(seconds=20 * index)).isoformat(),
        }
        cached = sent


@contextmanager
def sample_searches() -> Iterator[Path]:
    """A folder with one conversation and one collection of documents, each with a question."""
    turns = [
        {"id": "t1", "text": "The retry policy waits two seconds.", "speaker": "Ana", "session": 1},
        {"id": "t2", "text": "The invoice is due on Friday.", "speaker": "Ben", "session": 1},
        {"id": "t3", "text": "Parcels leave the depot at noon.", "speaker": "Ana", "session": 2},
    ]
    asked = [{"q": "How long does the retry policy wait?", "evidence": ["t1"]}]
    corpus = [
        {"_id": "d1", "title": "Retries", "text": "A request is retried three times."},
        {"_id": "d2", "title": "Limits", "text": "At most twenty requests a minute."},
    ]
    with TemporaryDirectory(prefix="lamina-bench-") as name:
        folder = Path(name)
        (folder / "memory/dev").mkdir(parents=True)
        documents = folder / "retrieval/dev/made_up"
        documents.mkdir(parents=True)
        conversation = {"conversation_id": "c1", "turns": turns, "questions": asked}
        write_lines(folder / "memory/dev/talks.jsonl", [conversation])
        write_lines(documents / "corpus.jsonl", corpus)
        write_lines(documents / "queries.jsonl", [{"_id": "q1", "text": "How often is a request retried?"}])
        (documents / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n", encoding="utf-8")
        yield folder


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
