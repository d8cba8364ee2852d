"""What each part of digests and reminders is worth: it is switched off in a process of its own, and measured.

    python bench/ablation.py --sessions PATH... --windows 12000,32000     names in sight and cost
    python bench/ablation.py --memorycode PATH --bfcl FOLDER --memory PATH...
    python bench/ablation.py --variables --losses losses.json             links, and a model's loss
    python bench/ablation.py --quick                                      some seconds, to see that it works

Columns: *lines* of the files that hold little else than the part; *names* that the next answer takes from
earlier results, in sight, and what the session costs beside a sliding window (95 to 50 %); *rules* in force
that can be read throughout a talk; *talks*, questions whose answer is in sight when they are asked; *links*
of the variables of `make proof`. *Loss* is what lamina has more than without the part, so that less than 0
speaks for the part.

The file of losses has a list for each window: `[session, call, part, tokens of the prompt, tokens of the
answer, their loss, needed tokens, their loss]`, where `nothing` is lamina as it is. notes/planner.md has the
figures, and says how a model's losses are made.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import sys
from collections.abc import Sequence
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `bench`, however this is started

import lamina.core
from bench import talks
from bench.arguments import split_list, split_numbers
from bench.lab.runs import replay
from bench.lab.sums import sum_outcomes
from bench.proof.follow import follow
from bench.proof.variables import make_tasks
from bench.samples import QUICK_HELP, sample_sessions
from bench.standing_rules import rule_talks
from lamina.core.text.clipping import clip_lines
from lamina.costs import Trace, read_traces
from lamina.models.counters import counter_for
from tools.house import count_code_lines

WHOLE, BAREST = "nothing", "all of them"
"""The names of the rows in which everything is on, and every part off."""

COUNT_AS = "gpt-5.4"
CORE = Path(lamina.core.__file__).parent
OWN, OTHER, LINK_WINDOWS = "lamina", "sliding", (4_000, 8_000)


class Seam(NamedTuple):
    """A function or method of lamina, as `module:name`, and what stands in its place."""

    place: str
    off: Any

    def find(self) -> tuple[Any, str, Any]:
        """What holds it, its name there, and what it is. Raises LookupError if it is gone."""
        module, _, path = self.place.partition(":")
        owner: Any = importlib.import_module(f"lamina.core.{module}")
        *outer, name = path.split(".")
        for each in outer:
            owner = getattr(owner, each, None)
        if not hasattr(owner, name):
            raise LookupError(f"bench/ablation.py: there is no {self.place}")
        return owner, name, inspect.getattr_static(owner, name)


def _shorten(text: str, *, limit: int, **_: str) -> str:
    return text if len(text) <= limit else clip_lines(text, limit=limit)


def _rate_alike(texts: Sequence[str]) -> list[int]:
    """No sentence is denser than another."""
    return [1] * len(texts)


class Part(NamedTuple):
    """What is switched off together, and the files of `lamina.core` that hold little else."""

    seams: tuple[Seam, ...]
    files: tuple[str, ...] = ()


HIDDEN = Seam("cut_digests:list_hidden_names", lambda progress: progress)
PARTS = {
    "reminders": Part(
        (Seam("remind:remind", lambda draft, *_: draft),), ("remind", "reminders", "passages", "text/terms")
    ),
    "notes": Part((Seam("text.gist:print_gist", lambda *_: ""),), ("text/gist",)),
    "replies": Part((Seam("text.gist:gather_reply", lambda *_, **__: iter(())),)),
    "hidden names": Part((HIDDEN,)),
    "all names": Part(
        (HIDDEN, Seam("text.excerpts:list_first_names", lambda *_, **__: "")), ("text/excerpts",)
    ),
    "outlines": Part(
        (Seam("text.outline:outline_text", _shorten), Seam("text.outline:outline_with_names", _shorten)),
        ("text/outline", "text/code"),
    ),
    "rules and wishes": Part(
        (
            Seam("text.standing_rules:weigh_sentence", lambda _: ""),
            Seam("text.standing_rules:find_rules", lambda _: []),
            Seam("text.standing_rules:find_replaced", lambda _: {}),
            Seam("text.standing_rules:is_agreement", lambda _: False),
        ),
        ("text/standing_rules", "text/rule_words", "text/wish_words"),
    ),
    "dense facts": Part((Seam("text.facts:rate_densities", _rate_alike),), ("text/facts",)),
    "facts of results": Part((Seam("run_text:RunText.choose_facts", lambda *_: ""),)),
}
"""The parts by their names. What is named here may be renamed: a test looks whether all of it is there."""


def find_part(name: str) -> Part:
    """A part by its name. The barest has all of them, and `WHOLE` none."""
    if name != BAREST:
        return Part(()) if name == WHOLE else PARTS[name]
    seams = dict.fromkeys(seam for part in PARTS.values() for seam in part.seams)
    return Part(tuple(seams), tuple(file for part in PARTS.values() for file in part.files))


def switch_off(part: str) -> None:
    """Switch a part off in this process, wherever a module has its functions by name."""
    for seam in find_part(part).seams:
        owner, name, function = seam.find()
        setattr(owner, name, seam.off)
        for module_name, module in list(sys.modules.items()):
            if module_name.startswith("lamina") and vars(module).get(name) is function:
                setattr(module, name, seam.off)


def count_lines(part: str) -> int:
    """Lines of code of the files that hold little else than this part."""
    return sum(count_code_lines(CORE / f"{file}.py") for file in find_part(part).files)


def measure(part: str, options: argparse.Namespace) -> dict[str, float]:
    """Every figure of one part, by its column. Run it in a process of its own."""
    switch_off(part)
    figures: dict[str, float] = {"lines": count_lines(part)}
    for window in options.windows if options.sessions else ():
        figures |= _measure_sessions(options.sessions, window, options.every)
    ruled = [talks.made_up_talk(made) for made in rule_talks(options.rules)]
    if options.memorycode:
        ruled += list(talks.read_memory_code(options.memorycode))[: options.talks]
    if ruled:
        found = [_follow(talk, talk.window or 16_000).throughout["rules"] for talk in ruled]
        figures["rules"] = _share(found)
    asked = [*(talks.read_bfcl(options.bfcl) if options.bfcl else ())]
    asked += [talk for path in options.memory for talk in talks.read_memory(path)]
    outcomes = [_follow(talk, 4_000).asked or talks.AskedOutcome() for talk in asked]
    if outcomes:
        figures["talks"] = _share([(each.in_sight, each.questions) for each in outcomes])
    for window in LINK_WINDOWS if options.variables else ():
        tasks = make_tasks(options.variables)
        seen = [follow(task, OWN, window, "anthropic", with_reader=False).outcomes[0].seen for task in tasks]
        figures[f"links {window:,}"] = _share([(sum(flags), len(flags)) for flags in seen])
    return figures


def _measure_sessions(paths: Sequence[str], window: int, every: int) -> dict[str, float]:
    traces = [each for each in read_traces(*paths) if isinstance(each, Trace)][::every]
    account = replay(traces, policies=[OTHER, OWN], windows=[window], count_as=COUNT_AS, pressed=True)
    sums = {each.policy: each for each in sum_outcomes(account.outcomes)}
    if OWN not in sums:
        return {}
    names = 100 * (sums[OWN].recall or 0.0)
    return {f"names {window:,}": names, f"cost {window:,}": sums[OWN].equivalents / sums[OTHER].equivalents}


def _follow(talk: talks.Talk, window: int) -> talks.TalkOutcome:
    ask = partial(talks.word_question, template=talks.QUESTION_FOR_A_MODEL, marked=True)
    return talks.follow_talk(talk, OWN, window, ask)


def _share(counts: Sequence[tuple[int, int]]) -> float:
    return 100 * sum(pair[0] for pair in counts) / max(sum(pair[1] for pair in counts), 1)


def losses_of(part: str, rows: Sequence[Sequence[Any]]) -> tuple[float, float]:
    """What lamina loses more than without a part, for a token of any kind and for a needed one."""
    whole = {(row[0], row[1]): row[4:] for row in rows if row[2] == WHOLE}
    without = {(row[0], row[1]): row[4:] for row in rows if row[2] == part}
    both = sorted(whole.keys() & without.keys())
    first, second = (_means([group[key] for key in both]) for group in (whole, without))
    return first[0] - second[0], first[1] - second[1]


def _means(answers: Sequence[Sequence[float]]) -> tuple[float, float]:
    tokens, loss, needed, needed_loss = (sum(answer[at] for answer in answers) for at in range(4))
    return loss / max(tokens, 1), needed_loss / max(needed, 1)


def main() -> int:
    options = _options()
    if not options.quick:
        return print_table(options)
    with sample_sessions(sessions=1, turns=3) as path:
        options.sessions, options.windows = [str(path)], [4_000]
        options.rules, options.variables, options.only = 1, 1, ["notes"]
        return print_table(options)


def print_table(options: argparse.Namespace) -> int:
    """One row for each part, printed as it is measured, as a table of Markdown."""
    losses = json.loads(options.losses.read_text()) if options.losses else {}
    counter_for(COUNT_AS).count("a")  # loaded once, before the processes
    rows: dict[str, dict[str, float]] = {}
    for part in [WHOLE, *(options.only or [*PARTS, BAREST])]:
        # Switched off in a process that ends: the next part finds everything in its place.
        with get_context("fork").Pool(1) as pool:
            figures = pool.apply(measure, (part, options))
        for window, given in losses.items():
            figures[f"loss {window}"], figures[f"needed {window}"] = losses_of(part, given)
        if not rows:
            print(f"| without | {' | '.join(figures)} |\n|---|{'--:|' * len(figures)}", flush=True)
        rows[part] = figures
        print(f"| {part} | {' | '.join(f'{figure:.4g}' for figure in figures.values())} |", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--sessions", nargs="*", default=[], metavar="PATH", help="recorded sessions")
    add("--windows", type=split_numbers, default=[12_000, 32_000], metavar="N,...")
    add("--every", type=int, default=1, metavar="N", help="only each N-th session")
    add("--rules", type=int, default=0, metavar="N", help="made-up talks with a standing rule")
    add("--memorycode", type=Path, metavar="PATH")
    add("--talks", type=int, metavar="N", help="only the first N talks of MemoryCode")
    add("--bfcl", type=Path, metavar="FOLDER")
    add("--memory", type=Path, nargs="*", default=[], metavar="PATH")
    add("--variables", type=int, nargs="?", const=40, default=0, metavar="N", help="tasks with variables")
    add("--losses", type=Path, metavar="FILE")
    add("--only", type=split_list, default=[], metavar="PART,...", help=f"of {', '.join(PARTS)}")
    add("--json", type=Path, metavar="FILE", help="write every figure to this file, too")
    add("--quick", action="store_true", help=QUICK_HELP)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
