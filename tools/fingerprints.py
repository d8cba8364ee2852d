"""Prints one digest for each of many requests and kept texts: every interpreter must print the same.

    python -m tools.fingerprints               digests and names, one a line
    python -m tools.fingerprints --quick       the same for two of the dialects
    python -m tools.fingerprints NAME          the text behind one of them, to see where two interpreters part

Whatever lamina does to single characters is tried on a session in many scripts and on hostile texts: requests
in every dialect and layout, digests, outlines, names, counts, search, chats on disk. Sealed stores
are left out, since their bytes are random; golden sessions have files of their own. It needs what lamina
itself needs, and nothing else.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any

import anyio
import msgspec

from examples.importers.chat_page import MarkdownChat, read, write
from examples.importers.tagged_context import read_context
from lamina import Policy, segments
from lamina.blocking import Session
from lamina.context.relevance import score_by_words
from lamina.context.search import chunks_of, excerpts, open_index
from lamina.context.search.words import find_terms, fold_text
from lamina.core import Cap, Layout, text_of
from lamina.core.text.arguments import pick_telling_argument, shorten_arguments
from lamina.core.text.estimate import FAMILIES, estimate_tokens
from lamina.core.text.excerpts import (
    clean_text,
    count_names,
    find_decisions,
    find_error_lines,
    find_paths,
    list_first_names,
    to_one_line,
)
from lamina.core.text.outline import outline_with_names
from lamina.core.text.tags import make_inert
from lamina.core.values import Budget, Form, Segment
from lamina.core.wording import TAGGED, guard
from lamina.dialects import DIALECTS, Dialect
from lamina.fitting import fit_request
from lamina.formats.codec import encode
from lamina.models.counters.vocabularies import vocabulary
from lamina.sessions import RuntimeOptions
from lamina.stores import MemoryStore
from lamina.summaries import collect_facts, find_problems
from lamina.testing import generate_session, split_calls
from lamina.workspace.html_text import read_page
from tests.fixtures.attacks import ATTACKS
from tests.fixtures.golden import Golden, requests
from tests.fixtures.scripts import DISGUISED, LINE_ENDS, MARKED, SENTENCES, SPACES, YOUNG, scripts

LAYOUTS = {
    "in place": Layout(),
    "hoisted": Layout(library="hoisted"),
    "context after": Layout(context="after"),
    "outlines": Layout(attachments=Cap(tokens=0, form=Form.COMPACT)),
    "stubs": Layout(attachments=Cap(tokens=0, form=Form.STUB)),
}
GROWING = {
    "many scripts": tuple(split_calls(scripts()))[14::18],
    "work": tuple(split_calls(generate_session(7, turns=3, steps=4)))[8::9],
}
VOCABULARIES = ("o200k_base", "qwen3", "gemma3")
QUICK = "--quick"
QUICK_DIALECTS = ("anthropic", "text")
"""One whose requests are objects, and the one that is text. What is read and cut is the same in all."""

TEXTS = (*SENTENCES.values(), *ATTACKS.values(), YOUNG, SPACES, LINE_ENDS, DISGUISED, MARKED)


def everything(dialects: Sequence[str] = tuple(DIALECTS)) -> dict[str, Callable[[], Any]]:
    """What is compared, by name, made when it is asked for."""
    found: dict[str, Callable[[], Any]] = {}
    for dialect in map(DIALECTS.__getitem__, dialects):
        found |= requests_in(dialect)
        found[f"fitted, {dialect.name}"] = partial(fitted, dialect)
        found[f"attacks, {dialect.name}"] = partial(attacked, dialect)
    for name, reader in READERS.items():
        found[f"text, {name}"] = partial(map, reader, TEXTS)
    found["documents"] = outlined
    found["tool calls"] = understood
    found["tokens"] = counted
    found["search"] = partial(anyio.run, searched)
    found["chats"] = kept
    found["session"] = talked
    found["summaries"] = judged
    return found


def digest(value: Any) -> str:
    return sha256(written(value).encode()).hexdigest()[:16]


def written(value: Any) -> str:
    """Any value as text of ASCII; what comes one by one is a list."""
    value = list(value) if isinstance(value, Iterator) else value
    plain = msgspec.to_builtins(value, builtin_types=(bytes,), str_keys=True)
    return json.dumps(plain, indent=1)


# requests


def requests_in(dialect: Dialect) -> dict[str, Callable[[], Any]]:
    """The requests of two sessions in one dialect, cut, in one of the layouts; the dialects take turns."""
    shapes = list(LAYOUTS)
    shape = shapes[list(DIALECTS).index(dialect.name) % len(shapes)]
    found: dict[str, Callable[[], Any]] = {}
    for golden in cut_sessions(shape):
        found[f"{golden.name}, {dialect.name}"] = partial(requests, golden, dialect)
    return found


def cut_sessions(shape: str) -> Iterator[Golden]:
    """Two growing sessions in a window that is too small for them, in this layout."""
    for name, logs in GROWING.items():
        budget = Budget(window=4_500, reserve=0)
        yield Golden(name=f"{name}, {shape}", logs=logs, layout=LAYOUTS[shape], budget=budget)


def fitted(dialect: Dialect) -> Iterator[tuple[Any, Any]]:
    """A client's growing requests, made to fit with the ledger of the one before as JSON."""
    growing = Golden(name="client", logs=tuple(split_calls(scripts()))[6::15])
    budget, counter = Budget(window=6_000, reserve=0), vocabulary("qwen3")
    ledger: Mapping[str, Any] | None = None
    for request in requests(growing, dialect):
        made = fit_request(
            request, dialect=dialect, budget=budget, policy=Policy(counter=counter), ledger=ledger
        )
        ledger = json.loads(json.dumps(made.ledger.dump()))
        yield made.request, ledger


def attacked(dialect: Dialect) -> list[Any]:
    """Hostile text in every place of one log."""
    logs = tuple(tuple(hostile(text)) for text in ATTACKS.values())
    whole = Golden(name="attacks", logs=logs)
    lowered = Golden(name="lowered", logs=logs, layout=LAYOUTS["outlines"])
    return [list(requests(golden, dialect)) for golden in (whole, lowered)]


def hostile(text: str) -> Iterator[Segment]:
    yield segments.system(f"Be brief. {text}")
    yield segments.file(f"docs/{text[:40]}.md", text * 3)
    yield segments.user(f"{text}?")
    yield segments.call("read_file", {"path": text}, id="c1", joins=False)
    yield segments.result(text, id="c1", name="read_file")
    yield segments.user("And now?")


# text


READERS: dict[str, Callable[[str], Any]] = {
    "guarded": guard,
    "inert": lambda text: make_inert(text, 80),
    "cleaned": clean_text,
    "one line": lambda text: to_one_line(text, 60),
    "paths": lambda text: list(find_paths(text)),
    "decisions": lambda text: list(find_decisions(f"I will do it. {text} Done: {text}")),
    "errors": find_error_lines,
    "names": lambda text: list_first_names(count_names(text), limit=200),
    "estimated": lambda text: [estimate_tokens(text, family=family) for family in FAMILIES],
    "folded words": fold_text,
    "query": find_terms,
    "page": lambda text: read_page(f"<p>{text}<pre>{text}</pre><b style=' DISPLAY : none '>{text}</b>"),
}


def outlined() -> Iterator[str]:
    """Long texts of every sort, shortened."""
    for part in scripts():
        text = text_of(part.parts)
        for name in ("a.md", "a.py", "a.csv", "a.json", "a.log", ""):
            yield outline_with_names(text * 2, limit=len(text), name=name)


def counted() -> dict[str, list[int]]:
    """Tokens by some vocabularies: one composes characters first, one holds tags as tokens."""
    return {name: [vocabulary(name).count(text) for text in TEXTS] for name in VOCABULARIES}


def understood() -> Iterator[Any]:
    """What calls are about, by their names and arguments."""
    for text in TEXTS:
        arguments = json.dumps(
            {"path": text, "command": f"cat {text}", "content": text * 9}, ensure_ascii=False
        )
        yield pick_telling_argument(arguments)
        yield shorten_arguments(arguments, limit=40, mark="[{size}]")


# what is found and kept


async def searched() -> list[Any]:
    """Excerpts for questions in every script."""
    async with open_index() as index:
        for part in scripts():
            if part.key:
                await index.replace(part.key, chunks_of(part.key, text_of(part.parts), longest=300))
        found = [await index.query(question, most=5) for question in (*SENTENCES.values(), YOUNG, DISGUISED)]
    notes = [part for part in scripts() if part.kind == "note"]
    ranked = [score_by_words(question, notes) for question in SENTENCES.values()]
    work = generate_session(3, turns=2)
    ranked += [score_by_words(text_of(part.parts)[:2_000], work) for part in work[:12]]
    return [[excerpts(hits, room=500) for hits in found], ranked]


def kept() -> Iterator[Any]:
    """Logs as they stand on disk, and as they are read again."""
    log = scripts()
    yield [encode(part).decode() for part in log]
    shown = write(MarkdownChat(log=log[:24]))
    yield shown
    yield read(shown).log
    yield read(shown, hidden=False).log
    for text in (shown, DISGUISED, *map(tagged, log[:24])):
        yield read_context(text)


def tagged(part: Segment) -> str:
    worded = TAGGED(part, Form.FULL, segments_digest(part))
    return text_of(worded)


def segments_digest(part: Segment) -> Any:
    return sha256(text_of(part.parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def talked() -> list[Any]:
    """A session with attachments, cuts and recalls, opened again for each turn."""
    store, made = MemoryStore(), list[Any]()
    budget = Budget(window=3_000, reserve=0)
    for name, sentence in list(SENTENCES.items())[:9]:
        opened = Session.open(
            store,
            "chat",
            model="gpt-5",
            policy=Policy(budget=budget, recall="tool"),
            runtime=RuntimeOptions(clock=None),
        )
        with opened as talk:
            talk.ask(f"{sentence}{DISGUISED}", attach=[segments.note(f"{name}.md", sentence * 30)])
            made.append(talk.request())
            talk.record(f"{sentence}{LINE_ENDS}")
            lowered = [row.recall for row in talk.explain().rows if row.recall]
            made += [talk.recall(key, find=sentence[2:6].upper()) for key in lowered[:3]]
    return made


def judged() -> list[Any]:
    """What a summary must name, and what is wrong with some."""
    wanted = collect_facts(scripts())
    covered = "".join(SENTENCES.values())
    return [wanted, *(find_problems(text, wanted, source=covered) for text in TEXTS)]


def main(arguments: Sequence[str]) -> int:
    if arguments == [QUICK]:
        names = everything(QUICK_DIALECTS)
    elif arguments:
        print(written(everything()[arguments[0]]()))
        return 0
    else:
        names = everything()
    for name, made in names.items():
        print(digest(made()), name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
