"""Talks under each policy: what they cost, and what of all that was said can still be read at their end.

    python bench/talks.py --bfcl FOLDER --windows 4000,8000     answers in sight, by BFCL's memory questions
    python bench/talks.py --memory PATH...                      evidence, instructions, preferences
    python bench/talks.py --memorycode PATH --talks 9           rules in force at the end, by MemoryCode
    python bench/talks.py --rules 100                           made-up talks with a standing rule
    python bench/talks.py --wishes aside --windows 8000,32000   made-up talks with wishes among small talk
    python bench/talks.py --quick                               a second or two, to see that it works

FOLDER is `bfcl_eval/data` of the wheel `bfcl-eval` (`pip download --no-deps bfcl-eval`, then unpack it). Only
its scenarios `customer` and `finance` are read. A PATH has conversations as JSON lines, with `turns` and
`questions` that name their evidence. MemoryCode (arXiv 2502.13791) has coding rules among small talk, and
some of them change. `--asked "{question}" --unmarked` asks without a question mark. No model is asked: an
answer is in sight if one of its spellings stands in the last request. What a talk costs is relative to
sending everything, a cached token at a tenth of the price and a new one at 1.25 of it. notes/planner.md has
the figures.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `bench`, however this is started

from bench.arguments import split_list, split_numbers
from bench.lab.policies import find_policy
from bench.lab.port import PolicyRun, make_setting
from bench.samples import QUICK_HELP
from bench.standing_rules import RuleTalk, Wish, rule_talks
from bench.wishes import HALVES, recognise_half, wish_talks
from lamina.caches import all_rules
from lamina.costs.logs.message_sizes import MessageSizes
from lamina.models.counters import counter_for

POLICIES = "drop_oldest,sliding@0.3,sliding@0.5,sliding@0.7,sliding@0.85,lamina"
WINDOWS = "4000,8000,16000"
COUNT_AS = "gpt-5.4"
RESERVE = 500
"""Tokens that are kept free for the answer, as in a talk with short answers."""

READ, WRITE = 0.1, 1.25
SCENARIOS = ("customer", "finance")
"""The others are left for judging."""

LAST_QUESTION = "One question about all this."
QUESTION_FOR_A_MODEL = "{question} Answer from our conversation, in as few words as you can."
REMINDER_TAG = "<reminder"
"""How a message begins that lamina put in before a question."""

LOOKS = 24
"""Places of a talk, evenly spread, at which is looked what can be read."""

SHINGLE, READABLE = 4, 0.6
"""A message is readable if so large a share of its runs of four words stands in the request."""

TELLING = re.compile(
    r"\b(?:prefer\w*|chose\w*|decid\w*|rather|always|never|like|love|enjoy|aim|want|considering|trying)\b"
)
WISHES = ("instruction", "preference")
WITHOUT_ANSWER = ("adversarial", "abstention")
"""Categories of questions: those about a wish of the user, and those that the talk does not answer."""

REPLACED = "replaced in turn"
"""What a digest says in the line of a rule that a later one replaced."""

RULE_LINE = re.compile(r"^ *\d+, (?:rule|with a rule)\b.*$", re.MULTILINE)
"""The line that a digest has for a standing rule."""

BEFORE, AFTER = 3, 14
"""Of an instruction or a preference, so many words around the first telling one are sought."""

Message = dict[str, Any]


class Sought(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was said in a talk: it is in sight if one of the spellings can be read.

    `runs`: enough of its runs of words will do, since a message may be quoted in part. `mark`: only a line
    counts that says this, too. `replaced` are earlier versions of a rule, which mislead without this one.
    """

    sort: str
    spellings: tuple[str, ...]
    question: str = ""
    runs: bool = False
    mark: str = ""
    replaced: tuple[str, ...] = ()


class Talk(msgspec.Struct, frozen=True, kw_only=True):
    """A talk, and what is sought at its end. `window` is the one that it is made for; 0: any."""

    name: str
    messages: list[Message]
    sought: list[Sought]
    window: int = 0


class TalkOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one policy made of one talk.

    `found` has, for each sort, how many are in sight at the end and how many there are. `throughout` has the
    same for several places of the talk together, each with what was said by then: where the last cut happens
    to fall decides less there. `rule_tokens` are those of the lines that digests have for standing rules.
    """

    talk: str
    policy: str
    window: int
    cost: float
    cost_of_all: float
    breaks: int
    tokens: int
    found: dict[str, tuple[int, int]]
    throughout: dict[str, tuple[int, int]]
    rule_tokens: int = 0
    asked: AskedOutcome | None = None


class AskedOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in the requests in which the questions are asked at the end, each by itself.

    `reminded` counts the questions with a reminder, and `told` of these those whose answer only it has.
    `reminder_tokens` are those of all reminders. `misled` counts those in which a rule that was replaced can
    be read, and the one in force cannot.
    """

    questions: int = 0
    in_sight: int = 0
    misled: int = 0
    reminded: int = 0
    told: int = 0
    reminder_tokens: int = 0


def main() -> int:
    options = _options()
    if options.quick:
        options.rules, options.windows = 2, [4_000]
        options.policies = ["sliding@0.5", "lamina"]
    if options.wishes:
        _print_recognition(options.wishes)
    talks = list(_read_talks(options))[: options.talks]
    outcomes: list[TalkOutcome] = []
    template = options.asked or ("{question}" if options.memorycode else QUESTION_FOR_A_MODEL)
    ask = partial(word_question, template=template, marked=not options.unmarked)
    for window in options.only or options.windows:
        of_window = [talk for talk in talks if talk.window in (0, window)]
        for name in options.policies if of_window else ():
            group = [follow_talk(talk, name, window, ask) for talk in of_window]
            outcomes += group
            print(summary(group), flush=True)
    if options.json:
        options.json.write_bytes(msgspec.json.encode(outcomes))
    return 0


def _print_recognition(half: str) -> None:
    """Say how many wishes are known by their words, and how many other sentences are taken for one."""
    rows = list(recognise_half(half))
    by_language = ", ".join(f"{row.language} {row.known} and {row.mistaken}" for row in rows)
    known = sum(row.known for row in rows)
    mistaken = sum(row.mistaken for row in rows)
    wishes = sum(row.wishes for row in rows)
    others = sum(row.others for row in rows)
    print(f"known: {known} of {wishes} wishes and {mistaken} of {others} others ({by_language})")


def word_question(question: str, *, template: str, marked: bool) -> str:
    """A question as it is asked. People who type or dictate often leave the question mark out."""
    if not marked:
        question = question.replace("?", "")
    return template.format(question=question)


def follow_talk(talk: Talk, policy: str, window: int, ask: Callable[[str], str]) -> TalkOutcome:
    """Send a talk, message by message, look at its last request, and ask the questions after it."""
    message_sizes = MessageSizes(counter_for(COUNT_AS), [])
    setting = make_setting(window, message_sizes, all_rules()["anthropic"], reserve=RESERVE)
    run = find_policy(policy).start(setting)
    cost = 0.0
    cost_of_all = 0.0
    breaks = 0
    sent_before: list[Message] = []
    everything = 0
    throughout: dict[str, tuple[int, int]] = {}
    said_at = _find_where_said(talk)
    looks = _choose_places(talk)
    for end, message in enumerate(talk.messages, start=1):
        if message["role"] != "user":
            continue
        sent = run({"model": "gpt-5", "messages": talk.messages[:end]}, 0).messages
        same = _count_same(sent_before, sent)
        sizes = [message_sizes.measure(each).tokens for each in sent]
        cost += READ * sum(sizes[:same]) + WRITE * sum(sizes[same:])
        all_now = sum(message_sizes.measure(each).tokens for each in talk.messages[:end])
        cost_of_all += READ * everything + WRITE * (all_now - everything)
        everything = all_now
        breaks += same < len(sent_before)
        sent_before = sent
        if end in looks:
            said = [each for each, at in zip(talk.sought, said_at, strict=True) if at < end - 1]
            _add_counts(throughout, _find_all(said, sent))
    return TalkOutcome(
        talk=talk.name, policy=policy, window=window, cost=cost, cost_of_all=cost_of_all, breaks=breaks,
        tokens=sum(message_sizes.measure(each).tokens for each in sent_before),
        found=_find_all(talk.sought, sent_before),
        throughout=throughout,
        rule_tokens=_count_rule_lines(sent_before),
        asked=_ask_questions(talk, run, message_sizes, ask),
    )  # fmt: skip


def _ask_questions(
    talk: Talk, run: PolicyRun, message_sizes: MessageSizes, ask: Callable[[str], str]
) -> AskedOutcome:
    """Ask each question in the place of the last message, and look for what answers it.

    A question is answered if all that is sought for it can be read.
    """
    by_question: dict[str, list[Sought]] = {}
    for each in talk.sought:
        if each.question:
            by_question.setdefault(each.question, []).append(each)
    outcome = AskedOutcome()
    for question, sought in by_question.items():
        asked = {"role": "user", "content": ask(question)}
        sent = run({"model": "gpt-5", "messages": [*talk.messages[:-1], asked]}, 0).messages
        reminders = [message for message in sent[-3:] if REMINDER_TAG in message_text(message)]
        rest = [message for message in sent if message not in reminders]
        in_sight = _can_read(sought, sent)
        outcome = AskedOutcome(
            questions=outcome.questions + 1,
            in_sight=outcome.in_sight + in_sight,
            misled=outcome.misled + any(_misleads(each, sent) for each in sought),
            reminded=outcome.reminded + bool(reminders),
            told=outcome.told + (in_sight and not _can_read(sought, rest)),
            reminder_tokens=outcome.reminder_tokens
            + sum(message_sizes.measure(each).tokens for each in reminders),
        )
    return outcome


def _misleads(sought: Sought, messages: Sequence[Message]) -> bool:
    """Whether an earlier version of a rule can be read, and the one in force cannot."""
    earlier = Sought(sort=sought.sort, spellings=sought.replaced, runs=sought.runs)
    return _can_read([earlier], messages) and not _can_read([sought], messages)


def _can_read(sought: Iterable[Sought], messages: Sequence[Message]) -> bool:
    text = plain_words("\n".join(message_text(message) for message in messages))
    return all(is_in_sight(each, text) for each in sought)


def _count_rule_lines(messages: Sequence[Message]) -> int:
    lines = [line for message in messages for line in RULE_LINE.findall(message_text(message))]
    return counter_for(COUNT_AS).count("\n".join(lines)) if lines else 0


def _choose_places(talk: Talk) -> frozenset[int]:
    """The lengths of the requests at which is looked: evenly spread, from a quarter of the talk on."""
    ends = [end for end, message in enumerate(talk.messages, start=1) if message["role"] == "user"]
    later_ends = ends[len(ends) // 4 :]
    stride = max(len(later_ends) // LOOKS, 1)
    return frozenset(later_ends[::-1][::stride])


def _find_where_said(talk: Talk) -> list[int]:
    """The index of the first message in which each thing that is sought can be read."""
    texts = [plain_words(message_text(message)) for message in talk.messages]
    places: list[int] = []
    for sought in talk.sought:
        found_at = [at for at, text in enumerate(texts) if is_in_sight(sought, text)]
        places.append(found_at[0] if found_at else len(texts))
    return places


def _add_counts(sums: dict[str, tuple[int, int]], found: dict[str, tuple[int, int]]) -> None:
    for sort, (seen, count) in found.items():
        seen_before, count_before = sums.get(sort, (0, 0))
        sums[sort] = (seen_before + seen, count_before + count)


def _count_same(before: Sequence[Message], after: Sequence[Message]) -> int:
    """Messages at the beginning that are the same in both."""
    same = 0
    for one, other in zip(before, after, strict=False):
        if one != other:
            break
        same += 1
    return same


def _find_all(sought: Iterable[Sought], messages: Sequence[Message]) -> dict[str, tuple[int, int]]:
    whole_text = "\n".join(message_text(message) for message in messages)
    text = plain_words(whole_text)
    found: dict[str, tuple[int, int]] = {}
    for each in sought:
        seen, count = found.get(each.sort, (0, 0))
        is_found = is_marked(each, whole_text) if each.mark else is_in_sight(each, text)
        found[each.sort] = (seen + is_found, count + 1)
    return found


def is_marked(sought: Sought, text: str) -> bool:
    """Whether it can be read in a line of this text that has its mark, too."""
    return any(sought.mark in line and is_in_sight(sought, plain_words(line)) for line in text.splitlines())


def is_in_sight(sought: Sought, text: str) -> bool:
    """Whether it can be read in this text, of which only the plain words are left."""
    for spelling in sought.spellings:
        words = _plain_words_once(spelling)
        if f" {words} " in f" {text} ":
            return True
        if sought.runs and _has_enough_runs(_list_runs(words), text):
            return True
    return False


def _has_enough_runs(runs: Sequence[str], text: str) -> bool:
    """Whether enough of the runs stand in the text. It stops when too many are missing."""
    may_miss = len(runs) - READABLE * len(runs)
    missing = 0
    for run in runs:
        missing += run not in text
        if missing > may_miss + 1e-9:
            return False
    return True


@cache
def _list_runs(words: str) -> tuple[str, ...]:
    """The runs of four words. A shorter message is one run."""
    each = words.split()
    return tuple(" ".join(each[at : at + SHINGLE]) for at in range(max(len(each) - SHINGLE + 1, 1)))


@cache
def _plain_words_once(text: str) -> str:
    """The plain words of what is sought: it is looked for again and again."""
    return plain_words(text)


def plain_words(text: str) -> str:
    """Small letters and digits of any script, with one space between two words."""
    return " ".join(re.findall(r"[^\W_]+", text.lower()))


def message_text(message: Message) -> str:
    """The text of a message."""
    content = message["content"]
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content)


def summary(group: Sequence[TalkOutcome]) -> str:
    """One line for one policy in one window."""
    first = group[0]
    totals: dict[str, tuple[int, int]] = {}
    throughout: dict[str, tuple[int, int]] = {}
    for outcome in group:
        _add_counts(totals, outcome.found)
        _add_counts(throughout, outcome.throughout)
    cost = sum(outcome.cost for outcome in group) / sum(outcome.cost_of_all for outcome in group)
    room = (first.window - RESERVE) * len(group)
    parts = [f"{first.window:>7,} {first.policy:<16} cost {cost:.3f}  cuts {sum(o.breaks for o in group):>4}"]
    parts.append(f"fill {sum(o.tokens for o in group) / room:.2f} ")
    for sort, (seen, count) in totals.items():
        seen_throughout, count_throughout = throughout.get(sort, (0, 0))
        share = 100 * seen_throughout / max(count_throughout, 1)
        parts.append(f"{sort} {100 * seen / count:.1f} % of {count}, {share:.1f} % throughout")
    parts.append(_sum_up_asked(group))
    most_for_rules = max(outcome.rule_tokens for outcome in group) / (first.window - RESERVE)
    if most_for_rules:
        parts.append(f"lines of rules {100 * most_for_rules:.1f} % of the room at most")
    return "  ".join(parts)


def _sum_up_asked(group: Sequence[TalkOutcome]) -> str:
    asked = [outcome.asked for outcome in group if outcome.asked and outcome.asked.questions]
    if not asked:
        return ""
    questions = sum(each.questions for each in asked)
    in_sight = sum(each.in_sight for each in asked)
    reminded = sum(each.reminded for each in asked)
    told = sum(each.told for each in asked)
    tokens = sum(each.reminder_tokens for each in asked)
    misled = sum(each.misled for each in asked)
    shown_alone = f", a replaced rule alone {misled}" if misled else ""
    return (
        f"asked {100 * in_sight / questions:.1f} % of {questions}, reminded {reminded} "
        f"({told} by it alone, {tokens / max(reminded, 1):.0f} tokens each){shown_alone}"
    )


# Where talks come from.


def _read_talks(options: argparse.Namespace) -> Iterator[Talk]:
    if options.bfcl:
        yield from read_bfcl(options.bfcl)
    for path in options.memory:
        yield from read_memory(path)
    if options.memorycode:
        yield from read_memory_code(options.memorycode)
    windows = tuple(options.windows)
    yield from map(made_up_talk, rule_talks(options.rules, windows=windows))
    if options.wishes:
        yield from map(made_up_talk, wish_talks(options.wishes, windows=windows))


def made_up_talk(made: RuleTalk) -> Talk:
    """A talk that was made up, with what has to be readable at its end."""
    sought = [each for wish in made.wishes for each in _seek_wish(wish)]
    return Talk(name=made.name, messages=made.messages, sought=sought, window=made.window)


def _seek_wish(wish: Wish) -> Iterator[Sought]:
    yield Sought(sort=wish.sort, spellings=(wish.text,))
    if wish.sort == "replaced":
        yield Sought(sort="replaced, marked", spellings=(wish.text,), mark=REPLACED)


def read_bfcl(folder: Path) -> Iterator[Talk]:
    """The talks of the two scenarios. What the assistant says is not recorded: it takes note."""
    golds = {
        row["id"]: row["ground_truth"] for row in read_lines(folder / "possible_answer/BFCL_v4_memory.json")
    }
    questions = list(read_lines(folder / "BFCL_v4_memory.json"))
    for scenario in SCENARIOS:
        said: list[str] = []
        for row in read_lines(folder / f"memory_prereq_conversation/memory_{scenario}.json"):
            said += [m["content"] for turn in row["question"] for m in turn if m["role"] == "user"]
        messages: list[Message] = []
        for text in said:
            messages.append({"role": "user", "content": text})
            messages.append({"role": "assistant", "content": "Noted."})
        messages.append({"role": "user", "content": LAST_QUESTION})
        full = plain_words("\n".join(said))
        sought = []
        for question in questions:
            spellings = tuple(golds[question["id"]])
            was_said = any(plain_words(spelling) in full for spelling in spellings)
            if question["scenario"] == scenario and was_said:
                asked = question["question"][0][0]["content"]
                sought.append(Sought(sort="answers", spellings=spellings, question=asked))
        yield Talk(name=scenario, messages=messages, sought=sought)


def read_memory(path: Path) -> Iterator[Talk]:
    """Conversations with questions that name their evidence: each evidence is sought."""
    for row in read_lines(path):
        by_id = {turn["id"]: turn for turn in row["turns"]}
        users = {"user", row["turns"][0]["speaker"]}
        messages = []
        for turn in row["turns"]:
            role = "user" if turn["speaker"] in users else "assistant"
            messages.append({"role": role, "content": turn["text"] or "-"})
        while messages[-1]["role"] != "user":
            messages.pop()
        messages.append({"role": "user", "content": LAST_QUESTION})
        sought = []
        for question in row["questions"]:
            category = str(question["category"]).partition("_")[0]
            if category in WITHOUT_ANSWER:
                continue
            for evidence in dict.fromkeys(question.get("evidence") or ()):
                turn = by_id.get(evidence)
                if turn is None or not turn["text"]:
                    continue
                is_users = turn["speaker"] in users
                if category not in WISHES:
                    voice = "user" if is_users else "assistant"
                    sought.append(
                        Sought(
                            sort=f"evidence, {voice}",
                            spellings=(turn["text"],),
                            question=question["q"],
                            runs=True,
                        )
                    )
                elif is_users:
                    sought.append(Sought(sort=category, spellings=(find_core(turn["text"]),), runs=True))
        yield Talk(name=str(row["conversation_id"]), messages=messages, sought=sought)


def read_memory_code(path: Path) -> Iterator[Talk]:
    """Dialogues of a mentor and a developer over many sessions: the rules in force at the end are sought.

    Each is asked for by a piece of code that needs it, as in `Write a function that sorts a list.`
    Dialogues of all lengths come first, so that a few of them are a fair sample.
    """
    rows = list(read_lines(path))
    shares = [at / len(group) for group in _group_by_length(rows) for at in range(len(group))]
    for _, row in sorted(zip(shares, rows, strict=True), key=lambda pair: pair[0]):
        messages: list[Message] = []
        sought: dict[int, Sought] = {}
        for session, told in zip(row["sessions"], row["instructions"], strict=True):
            said = list(_read_paragraphs(session["text"], row["context"]["mentor"]))
            for message in said:
                if messages and messages[-1]["role"] == message["role"]:
                    message["content"] = f"{messages.pop()['content']}\n\n{message['content']}"
                messages.append(message)
            # A session has two topics for a rule and one for a filler; the rules come last.
            rules = [each for each in told if each != -1]
            texts = session["topic"][len(session["topic"]) - len(rules) :]
            queries = session["session_eval_query"]
            for (rule, _), text, query in zip(rules, texts, queries, strict=True):
                before = sought.get(rule)
                sought[rule] = Sought(
                    sort="rules",
                    spellings=find_telling(text, said),
                    question=f"Write a {query}.",
                    runs=True,
                    replaced=(*before.spellings, *before.replaced) if before else (),
                )
        while messages[-1]["role"] != "user":
            messages.pop()
        messages.append({"role": "user", "content": LAST_QUESTION})
        yield Talk(name=row["id"], messages=messages, sought=list(sought.values()))


def _group_by_length(rows: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Rows of as many sessions as the one before."""
    return [list(group) for _, group in groupby(rows, key=lambda row: len(row["sessions"]))]


def _read_paragraphs(text: str, mentor: str) -> Iterator[Message]:
    """What is said in a session: `NAME: words`, and paragraphs that go on."""
    role = "user"
    for paragraph in filter(None, (each.strip() for each in text.split("\n\n"))):
        name, colon, words = paragraph.partition(": ")
        is_named = bool(colon) and " " not in name
        if is_named:
            role = "user" if name == mentor else "assistant"
        yield {"role": role, "content": words if is_named else paragraph}


def find_telling(rule: str, said: Sequence[Message]) -> tuple[str, ...]:
    """The sentence of the user that has most words of a rule: so it was told."""
    wanted = set(plain_words(rule).split())
    texts = [message["content"] for message in said if message["role"] == "user"]
    sentences = [each for text in texts for each in re.split(r"(?<=[.!?:])\s+", text)]
    return (max(sentences, key=lambda each: len(wanted & set(plain_words(each).split()))),)


def find_core(text: str) -> str:
    """The words of a message around the one by which it tells a wish."""
    match = TELLING.search(text.lower())
    if match is None:
        return " ".join(text.split()[: BEFORE + AFTER])
    before = text[: match.start()].split()[-BEFORE:]
    return " ".join([*before, *text[match.start() :].split()[:AFTER]])


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of JSON lines, also of compressed ones."""
    if path.suffix == ".zst":
        import zstandard  # noqa: PLC0415 - only for compressed files

        with path.open("rb") as raw:
            stream = zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(raw)
            for line in io.TextIOWrapper(stream, "utf-8", newline="\n"):
                yield json.loads(line)
        return
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--bfcl", type=Path, metavar="FOLDER")
    add("--memory", type=Path, nargs="*", default=[], metavar="PATH")
    add("--memorycode", type=Path, metavar="PATH")
    add("--talks", type=int, metavar="N", help="only the first N talks")
    add("--asked", metavar="TEXT", help="how {question} is asked")
    add("--unmarked", action="store_true", help="ask without question marks")
    add("--rules", type=int, default=0, metavar="N", help="made-up talks with a standing rule")
    add("--wishes", choices=HALVES, help="made-up talks with this half of the wishes")
    add("--windows", type=split_numbers, default=split_numbers(WINDOWS), metavar="N,...")
    add("--only", type=split_numbers, default=[], metavar="N,...", help="of the windows, those to run now")
    add("--policies", type=split_list, default=split_list(POLICIES), metavar="P,...")
    add("--json", type=Path, metavar="FILE", help="write every figure to this file, too")
    add("--quick", action="store_true", help=QUICK_HELP)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
