"""Invents a small project for made-up sessions: its files, and the sentences that people say about it.

Everything is drawn from one random generator, so the same seed gives the same project on every machine.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random

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
