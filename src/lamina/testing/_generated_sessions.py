"""Makes up sessions of a coding agent from a seed, for benchmarks, demonstrations and tests.

A small invented project is read, searched, edited and tested; files come up again, changed and
unchanged; most results are short and a few are long. The same arguments give the same session on every
machine. Nothing here knows budgets, forms or ledgers: a session is only a log.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

from lamina import segments
from lamina.core.values import Role, Segment

_CHANCES = {
    "read": 30,
    "again": 14,
    "edit": 16,
    "search": 12,
    "test": 14,
    "listing": 6,
    "tail": 3,
    "write": 5,
}
"""How often the agent does what, of a hundred steps."""

_SYSTEM = (
    "You are a careful programmer who works on {name}, a small service that plans deliveries. Read before "
    "you edit, run the tests after each change, keep changes small, and say in the end what you did and why. "
    "The project is in Python; its documents stand in docs/, its settings in settings.json."
)
_REQUESTS = (
    "The {field} of a {noun} comes out wrong when the {other} has none. Find out why and mend it.",
    "Add a function that can {verb} every {noun} of one {other}, with tests.",
    "{module} has grown too long. Which parts could stand on their own? Do not change anything yet.",
    "Good. Now do the same for {noun}, and make sure that the old callers still work.",
    "The tests of {noun} fail on my machine since yesterday. What happened?",
    "Please explain how a {noun} gets its {field}, from the request to the file.",
    "No, I meant the {other}, not the {noun}. Undo that, then {verb} it by {field} only.",
    "What does the document say about the {field} of a {noun}? Bring the code in line with it.",
)
_REMARKS = (
    "I look at {module} first.",
    "The {field} is set in two places, so I check both.",
    "Now the callers of {verb}_{noun}.",
    "That explains it: the {noun} is read before its {field} is known.",
    "I run the tests of {noun} again.",
    "Next, the part of {module} that deals with the {other}.",
)
_REPORTS = (
    "{verb}_{noun} now takes the {field} from the {other} when its own is missing.",
    "The cause was in {module}: a {noun} without a {field} was counted as if it were zero.",
    "I kept the old signature, so that nothing outside {module} has to change.",
    "There is a new test for a {noun} whose {other} has no {field}; it failed before and passes now.",
    "I did not touch the {other}: its {field} is used by the nightly run as well.",
    "One thing is left open: the document calls this the {field} of the {other}, the code does not.",
)
_THOUGHTS = (
    "The {field} could come from the {noun} or from the {other}; the name suggests the first.",
    "If I change {verb}_{noun}, the tests of {other} may break. I should look at them before I edit.",
    "The error points to {module}, but the value was already wrong when it got there.",
    "The user asked for the {noun} only, so the {other} stays as it is.",
)

NOUNS = "order invoice parcel route tariff voucher shelf courier rebate depot pallet manifest".split()
VERBS = "load merge split settle rank quote check archive assign price audit index".split()
FIELDS = "weight total region rate count label due owner zone margin priority source".split()
_TYPES = "int str float bool".split()
_PROSE = (
    "A {noun} belongs to exactly one {other}, and keeps its {field} for life.",
    "When the {field} changes, every {noun} of the {other} is put in line again.",
    "The {field} is rounded up once, at the end; rounding each {noun} would add up to a visible difference.",
    "To {verb} a {noun} means to fix its {field} and to tell the {other}.",
    "An unknown {field} is an error, a missing one is not: the {other} then decides.",
)


class InventedProject:
    """The files as they are now."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.name = f"{rng.choice(NOUNS)}works"
        nouns = rng.sample(NOUNS, 9)
        self.brief = f"docs/{nouns[0]}.md"
        self.files = {"settings.json": _settings(rng), "README.md": _document(rng, self.name, 6)}
        for noun in nouns:
            self.files[f"src/{noun}.py"] = _source_module(rng, noun, draw_size(rng, 4, 55))
        for noun in nouns[:4]:
            self.files[f"docs/{noun}.md"] = _document(rng, noun, draw_size(rng, 5, 40))
            self.files[f"tests/test_{noun}.py"] = write_tests(rng, noun, draw_size(rng, 3, 20))

    def pick(self, start: str = "") -> str:
        """A path; those that were made first come up most, as in real work."""
        paths = [path for path in self.files if path.startswith(start)]
        return paths[min(int(self.rng.expovariate(4 / len(paths))), len(paths) - 1)]

    def change(self, path: str) -> tuple[str, str]:
        """One line of a file, and what to put in its place: the same line with one more below it."""
        noun, field = self.rng.choice(NOUNS), self.rng.choice(FIELDS)
        old = self.rng.choice([line for line in self.files[path].splitlines() if line.startswith("    ")])
        new = f"{old}\n    {field} = {noun}.{field} or {self.rng.randint(2, 900)}"
        return old, new

    def revise(self, path: str) -> None:
        """What the user does to a file between two requests."""
        self.files[path] += f"\n## Revised\n\n{write_sentences(self, _PROSE, 4)}\n"

    def lines_with(self, word: str) -> list[str]:
        """The lines of all files that have a word, as `grep -n` prints them."""
        matches = []
        for path, text in self.files.items():
            lines = enumerate(text.splitlines(), start=1)
            matches += [f"{path}:{number}:{line}" for number, line in lines if word in line]
        return matches


def draw_size(rng: Random, least: int, most: int) -> int:
    """A size: mostly near `least`, now and then many times that."""
    return min(int(least * rng.paretovariate(1.1)), most)


def write_sentences(project: InventedProject, templates: Sequence[str], count: int) -> str:
    return " ".join(
        _fill_template(project.rng, template, project)
        for template in _choose_templates(project.rng, templates, count)
    )


def _choose_templates(rng: Random, templates: Sequence[str], count: int) -> list[str]:
    return [rng.choice(templates) for _ in range(count)]


def _fill_template(rng: Random, template: str, project: InventedProject | None = None) -> str:
    noun, other = rng.sample(NOUNS, 2)
    module = f"src/{noun}.py"
    if project:
        module = project.pick("src/")
    field, verb = rng.choice(FIELDS), rng.choice(VERBS)
    return template.format(noun=noun, other=other, field=field, verb=verb, module=module)


def _source_module(rng: Random, noun: str, functions: int) -> str:
    """A module of Python: a class, and so many functions about it."""
    fields = rng.sample(FIELDS, 4)
    head = [
        f'"""Everything about one {noun}: its {fields[0]}, its {fields[1]}, and who may change them."""',
        "",
    ]
    head += ["from dataclasses import dataclass", "", "", "@dataclass(frozen=True)", f"class {noun.title()}:"]
    head += [f"    {field}: {rng.choice(_TYPES)}" for field in fields]
    return "\n".join(head + [line for _ in range(functions) for line in _function(rng, noun)]) + "\n"


def _function(rng: Random, noun: str) -> list[str]:
    """The lines of one function, with a docstring and a check about half of the time."""
    verb = rng.choice(VERBS)
    one, two = rng.sample(FIELDS, 2)
    limit = rng.randint(2, 400)
    lines = ["", "", f"def {verb}_{noun}_{one}({noun}: {noun.title()}, *, {two}: int = {limit}) -> int:"]
    if rng.random() < 0.5:
        lines.append(f'    """{_fill_template(rng, rng.choice(_PROSE))}"""')
    if rng.random() < 0.6:
        lines += [f"    if {noun}.{one} is None:"]
        lines += [f'        raise ValueError(f"this {noun} has no {one}: {{{noun}!r}}")']
    for field in rng.sample(FIELDS, rng.randint(1, 4)):
        lines += [f"    {field} = max({noun}.{one}, {two}) * {rng.randint(2, 90)} // {rng.randint(2, 9)}"]
    return [*lines, f"    return {two} + {rng.randint(1, 99)}"]


def write_tests(rng: Random, noun: str, count: int) -> str:
    """A module of tests for one noun."""
    lines = [f"from {noun} import *  # noqa: F403", ""]
    for n in range(count):
        verb, field = rng.choice(VERBS), rng.choice(FIELDS)
        lines += [
            "",
            f"def test_{verb}_keeps_the_{field}_{n}():",
            f"    {noun} = make({field}={rng.randint(1, 99)})",
        ]
        lines += [f"    assert {verb}_{noun}({noun}).{field} == {rng.randint(1, 999)}", ""]
    return "\n".join(lines)


def _document(rng: Random, title: str, sections: int) -> str:
    lines = [f"# {title.title()}", ""]
    for _ in range(sections):
        lines += [f"## On the {rng.choice(FIELDS)} of a {rng.choice(NOUNS)}", ""]
        lines += [
            _fill_template(rng, template) for template in _choose_templates(rng, _PROSE, rng.randint(1, 4))
        ] + [""]
    return "\n".join(lines)


def _settings(rng: Random) -> str:
    """A settings file: one row for each noun."""
    rows = [{"name": noun, "field": rng.choice(FIELDS), "limit": rng.randint(1, 9_000)} for noun in NOUNS]
    return json.dumps({"version": rng.randint(1, 9), "rows": rows}, indent=2) + "\n"


class _Exchange(NamedTuple):
    """One call of a tool and what it answered."""

    name: str
    arguments: dict[str, str | int]
    text: str
    error: bool = False


def generate_session(
    seed: int, *, turns: int = 12, steps: int = 8, thinking: bool = False
) -> tuple[Segment, ...]:
    """The log of `turns` requests of a user, each answered after `steps` steps with tools, more or less."""
    rng = Random(seed)  # noqa: S311 - the same session each time, not a secret
    project = InventedProject(rng)
    log = [segments.system(_SYSTEM.format(name=project.name))]
    for turn in range(turns):
        log += _opening(project, turn, turns)
        agent = _Agent(project)
        for _ in range(rng.randint(1, max(2 * steps - 1, 1))):
            log += _step(project, agent.act(), thinking=thinking)
        reply = write_sentences(project, _REPORTS, rng.randint(2, 6))
        log += _message(project, [segments.assistant(reply)], thinking=thinking)
    return tuple(log)


def split_calls(log: Sequence[Segment]) -> Iterator[tuple[Segment, ...]]:
    """The log as it was at each call of the model: up to a prompt, or up to the results of a step.

    A step with two calls has two results, after which the model is called once.
    """
    for end in range(1, len(log) + 1):
        answered = end == len(log) or log[end].role is Role.ASSISTANT
        if answered and log[end - 1].role is not Role.ASSISTANT:
            yield tuple(log[:end])


def _opening(project: InventedProject, turn: int, turns: int) -> list[Segment]:
    """What the user puts in: a request, often with a file; now and then one that was there before."""
    brief = project.brief
    third = max(turns // 3, 1)
    attached = []
    # attached three times and revised before the last, so a session has it again unchanged, and changed
    if turn == 2 * third:
        project.revise(brief)
    if turn in (0, third, 2 * third):
        attached.append(segments.file(brief, project.files[brief]))
    elif project.rng.random() < 0.25:
        path = project.pick()
        attached.append(segments.file(path, project.files[path]))
    return [*attached, segments.user(write_sentences(project, _REQUESTS, 1))]


def _step(project: InventedProject, exchanges: Sequence[_Exchange], *, thinking: bool) -> list[Segment]:
    """A message of the assistant with calls, and their results.

    Most often it says something before the calls.
    """
    ids = [f"call_{project.rng.getrandbits(48):012x}" for _ in exchanges]
    parts = []
    if project.rng.random() < 0.6:
        parts.append(segments.assistant(write_sentences(project, _REMARKS, 1)))
    results = []
    for exchange, call_id in zip(exchanges, ids, strict=True):
        parts.append(segments.call(exchange.name, exchange.arguments, id=call_id))
        result = segments.result(exchange.text, id=call_id, name=exchange.name, error=exchange.error)
        results.append(result)
    return _message(project, parts, thinking=thinking) + results


def _message(project: InventedProject, parts: list[Segment], *, thinking: bool) -> list[Segment]:
    """Segments as one message: the first opens it, the others join."""
    if thinking:
        thought = write_sentences(project, _THOUGHTS, project.rng.randint(1, 3))
        signature = f"{project.rng.getrandbits(256):064x}"
        parts = [segments.thinking(thought, signature=signature), *parts]
    return [segments.segment(s.kind, s.role, s.parts, joins=i > 0) for i, s in enumerate(parts)]


class _Agent:
    """Chooses what is done next; an edit is looked at or tested in the step after it."""

    def __init__(self, project: InventedProject) -> None:
        self.project = project
        self.rng = project.rng
        self.follow = ""
        self.subject = project.pick()

    def act(self) -> list[_Exchange]:
        action = self.follow
        self.follow = ""
        if not action:
            (action,) = self.rng.choices([*_CHANCES], weights=[*_CHANCES.values()])
        exchanges: list[_Exchange] = getattr(self, f"_{action}")()
        return exchanges

    def _read(self) -> list[_Exchange]:
        """One file; sometimes two or three at once."""
        many = self.rng.choices([1, 2, 3], weights=[8, 2, 1])[0]
        paths = [self.project.pick() for _ in range(many)]
        self.subject = paths[-1]
        return [self._one_read(path) for path in paths]

    def _again(self) -> list[_Exchange]:
        return [self._one_read(self.subject)]

    def _one_read(self, path: str) -> _Exchange:
        """A read of a file: now and then one that is not there, most often a part of a long one."""
        if self.rng.random() < 0.05:
            missing = path.replace("/", "/old_", 1)
            return _Exchange("read_file", {"path": missing}, f"no such file: {missing}", error=True)
        lines = self.project.files[path].splitlines()
        if len(lines) <= 60 or self.rng.random() < 0.15:
            return _Exchange("read_file", {"path": path}, _numbered(lines, 1))
        start = self.rng.randrange(1, len(lines) - 30)
        limit = draw_size(self.rng, 15, 200)
        arguments: dict[str, str | int] = {"path": path, "offset": start, "limit": limit}
        return _Exchange("read_file", arguments, _numbered(lines[start - 1 : start - 1 + limit], start))

    def _edit(self) -> list[_Exchange]:
        self.follow = self.rng.choice(["again", "again", "test", ""])
        self.subject = path = self.project.pick("src/")
        old, new = self.project.change(path)
        arguments: dict[str, str | int] = {"path": path, "old": old, "new": new}
        if self.rng.random() < 0.1:
            self.follow = "again"
            arguments["old"] = f"{old}  # here"
            return [_Exchange("edit_file", arguments, f"not found in {path}: {old.strip()}", error=True)]
        self.project.files[path] = self.project.files[path].replace(old, new, 1)
        return [_Exchange("edit_file", arguments, f"edited {path}: 1 place")]

    def _write(self) -> list[_Exchange]:
        noun, verb = self.rng.choice(NOUNS), self.rng.choice(VERBS)
        path = f"tests/test_{verb}_{noun}.py"
        text = write_tests(self.rng, noun, draw_size(self.rng, 2, 12))
        self.project.files[path] = text
        self.follow, self.subject = "test", path
        return [
            _Exchange("write_file", {"path": path, "content": text}, f"wrote {path}: {len(text):,} bytes")
        ]

    def _search(self) -> list[_Exchange]:
        """A word in all files, with the lines that have it.

        How many lines are listed varies as in real work: most often few, and sometimes very many.
        """
        word = self.rng.choice([*NOUNS, *FIELDS, *(f"{verb}_" for verb in VERBS)])
        limit = draw_size(self.rng, 8, 150)
        matches = self.project.lines_with(word)[:limit]
        return [_Exchange("search", {"pattern": word, "limit": limit}, "\n".join(matches) or "no matches")]

    def _test(self) -> list[_Exchange]:
        path = self.project.pick("tests/")
        command = f"python -m pytest -q {path}"
        return [_Exchange("shell", {"command": command}, _test_run(self.rng, self.project, path))]

    def _listing(self) -> list[_Exchange]:
        """The files of a folder with their sizes, as `ls -l` prints them."""
        folder = self.rng.choice(["src", "tests", "docs", "."])
        rows = [
            f"-rw-r--r-- {len(text):>7} {path}"
            for path, text in sorted(self.project.files.items())
            if folder == "." or path.startswith(f"{folder}/")
        ]
        return [_Exchange("shell", {"command": f"ls -l {folder}"}, "\n".join(rows))]

    def _tail(self) -> list[_Exchange]:
        """A long log, as services write them."""
        rows = [_log_line(self.rng, n) for n in range(draw_size(self.rng, 60, 340))]
        return [_Exchange("shell", {"command": f"tail -n {len(rows)} service.log"}, "\n".join(rows))]


def _log_line(rng: Random, number: int) -> str:
    noun, field = rng.choice(NOUNS), rng.choice(FIELDS)
    level = rng.choices(["INFO", "WARN", "ERROR"], weights=[20, 3, 1])[0]
    what = f"{noun}={rng.getrandbits(32):08x} {field}={rng.randint(0, 9_999)}"
    return f"{number:06d} {level:<5} {what} took={rng.randint(1, 900)}ms"


def _test_run(rng: Random, project: InventedProject, path: str) -> str:
    """What a test runner prints: a line of dots, or tracebacks."""
    total = rng.randint(3, 60)
    failed = 0
    if rng.random() >= 0.55:
        failed = draw_size(rng, 1, 12)
    lines = ["F" * failed + "." * total]
    for n in range(failed):
        source = project.pick("src/")
        noun, field = rng.choice(NOUNS), rng.choice(FIELDS)
        lines += [
            f"____ test_{rng.choice(VERBS)}_keeps_the_{field}_{n} ____",
            "",
            f"{path}:{rng.randint(4, 90)}: in test",
        ]
        lines += [
            f"    assert {noun}.{field} == {rng.randint(1, 999)}",
            f"{source}:{rng.randint(4, 300)}: in {noun}",
        ]
        lines += [f"E   ValueError: this {noun} has no {field}: {noun.title()}({field}=None)", ""]
    return "\n".join([*lines, f"{failed} failed, {total} passed in 0.{rng.randint(10, 99)}s"])


def _numbered(lines: Sequence[str], start: int) -> str:
    """Lines with their numbers before them, as tools print files."""
    return "\n".join(f"{number:>5}  {line}" for number, line in enumerate(lines, start))
