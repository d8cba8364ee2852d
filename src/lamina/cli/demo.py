"""`lamina demo`: a long session of an agent, a question about its beginning, and what each policy costs.

The session is made up, no model is asked and nothing leaves the machine. The figures are simulated.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import msgspec

from lamina.caches import rules_for, simulator
from lamina.cli.output import emit, paint, progress
from lamina.cli.parser import add_json, seed_number, window_size
from lamina.cli.recording import MODEL, make_recording, split_calls
from lamina.cli.text_picture import draw_session
from lamina.conversations.costs import price_tally
from lamina.core.text.clipping import count_units
from lamina.core.values import Budget, Ledger
from lamina.core.wording import text_of
from lamina.costs.logs.message_sizes import MessageSizes
from lamina.fitting.policy import Policy
from lamina.fitting.request import Fitted, RequestMemo, fit_request
from lamina.models.counters import counter_for
from lamina.models.facts import AS_OF

SEED, TURNS, WINDOW = 4, 14, 32_000
RESERVED_PART = 8
"""One part in so many of the window is left for the answer."""

PACE = 20.0
"""Seconds between two calls."""

CHAT, OWN = "openai_chat", "lamina"
TITLES = {
    "none": "send everything",
    "sliding": "sliding window",
    OWN: "lamina",
}

FACT = "Restart it with svc glacier --drain 31."
QUESTION = "Which command restarts the glacier service?"
SERVICES = ("harbour", "lantern", "quarry", "meadow", "summit", "canyon", "orchard", "glacier", "prairie")
RUNBOOK = "# Runbook\n\n" + "\n\n".join(
    f"The {service} service has port {8000 + 37 * at}. Restart it with svc {service} --drain {10 + 3 * at}."
    for at, service in enumerate(SERVICES)
)
"""The file that the agent reads first. The question at the end is about one line of it."""

_AVERAGE = """\
On average over seeds 1 to 20, lamina costs 1.12 times as much as the sliding
window, recalls included. It loses no needed name; the window loses 23 of 240."""
"""A test that takes a minute measures these figures."""

_EXAMPLES = """\
The session is made up from its seed. Whether lamina is also the cheapest depends on the session: try several.

examples:
  lamina demo
  lamina demo --seed 6 --window 24000
  lamina demo --json | jq '.costs'

exit status: 0 done, 3 the session cannot be made to fit the window
"""


class DemoQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """The question at the end: what lamina sends about it, and when the sliding window lost it.

    `reminder` is the line that is quoted before the question, "" if there is none; `in_sight` says whether
    the request has the fact at all. `lost_at` is the first request of the sliding window without the file,
    0 if it is still there.
    """

    calls: int
    cuts: int
    reminder: str
    reminder_tokens: int
    in_sight: bool
    lost_at: int


class PolicyCost(msgspec.Struct, frozen=True, kw_only=True):
    """The session under one policy: the tokens of each request, and before which ones something was left out.

    `price` is that of the input in USD, and `cached` the share of it that the cache gave. `refused` requests
    are larger than the window.
    """

    policy: str
    price: float
    cached: float
    sizes: tuple[int, ...]
    cuts: tuple[int, ...]
    refused: int


def describe(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    add = parser.add_argument
    add("--seed", metavar="N", type=seed_number, default=SEED, help=f"which session (default: {SEED})")
    add(
        "--window",
        metavar="N",
        type=window_size,
        default=WINDOW,
        help=f"the context window in tokens (default: {WINDOW})",
    )
    add_json(parser, "what every policy costs, and what became of the question")


def run(arguments: argparse.Namespace) -> int:
    """Play a made-up session under each policy, ask about its beginning, and print what each costs."""
    session = make_session(arguments.seed)
    with progress("playing a made-up session"):
        question = _ask(session, arguments.window)
        costs = _play_policies(session, arguments)
    if arguments.json:
        emit(
            {
                "seed": arguments.seed,
                "turns": TURNS,
                "window": arguments.window,
                "costs": msgspec.to_builtins(costs),
                "question": msgspec.to_builtins(question),
            }
        )
    else:
        _print_question(question, arguments)
        _print_costs(costs)
        _print_picture(costs)
        _print_next(arguments)
    return 0


def make_session(seed: int) -> dict[str, Any]:
    """The recorded session, in which the agent first reads the runbook."""
    recording = make_recording(seed, turns=TURNS)
    function = {"name": "read_file", "arguments": '{"path": "ops/runbook.md"}'}
    call = {"id": "call_runbook", "type": "function", "function": function}
    system, *messages = recording["messages"]
    reading = [
        {"role": "user", "content": "Read ops/runbook.md before you begin."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": RUNBOOK},
        {"role": "assistant", "content": "I have read it."},
    ]
    return {**recording, "messages": [system, *reading, *messages]}


def _ask(session: dict[str, Any], window: int) -> DemoQuestion:
    """Send every request of the session and then the question, with lamina and with a sliding window."""
    prompt = {"role": "user", "content": QUESTION}
    calls = list(split_calls({**session, "messages": [*session["messages"], prompt]}))
    fitted = _fit_calls(calls, window)[-1]
    reminder, tokens = _find_reminder(fitted)
    return DemoQuestion(
        calls=len(calls),
        cuts=len(fitted.ledger.cuts),
        reminder=reminder,
        reminder_tokens=tokens,
        in_sight=FACT in str(fitted.request["messages"]),
        lost_at=_find_loss(calls, window),
    )


def _fit_calls(calls: Sequence[dict[str, Any]], window: int) -> list[Fitted]:
    """Each request of the session as lamina sends it."""
    rules = rules_for(MODEL, dialect=CHAT)
    policy = Policy(budget=Budget(window=window, reserve=window // RESERVED_PART), rules=rules)
    memo = RequestMemo()
    ledger = Ledger()
    sent: list[Fitted] = []
    for call in calls:
        sent.append(fit_request(call, dialect=CHAT, ledger=ledger, policy=policy, memo=memo))
        ledger = sent[-1].ledger
    return sent


def _find_reminder(fitted: Fitted) -> tuple[str, int]:
    """The quoted line with the fact, and the tokens of the reminder that has it."""
    for entry in fitted.envelope.entries:
        if entry.segment.kind != "reminder":
            continue
        for line in text_of(entry.parts).splitlines():
            if FACT in line:
                return line.strip(), entry.tokens
    return "", 0


def _find_loss(calls: Sequence[dict[str, Any]], window: int) -> int:
    """The first request of a sliding window that does not have the runbook; 0 if all later ones have it."""
    slide = _SlidingWindow(window, MessageSizes(counter_for(MODEL), calls[0]["tools"]))
    for number, call in enumerate(calls, start=1):
        contents = [message["content"] for message in slide.send(call["messages"])]
        if number > 1 and RUNBOOK not in contents:
            return number
    return 0


class _SlidingWindow:
    """Drops the oldest messages when little room is left, down to half of it, and keeps that boundary.

    The system text and the last message of the user stay, and a call stays with its results.
    """

    def __init__(self, window: int, sizes: MessageSizes) -> None:
        self._room = window - window // RESERVED_PART
        self._sizes = sizes
        self._first = 1
        self.slides = 0

    def send(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        sent = self._take(messages)
        if self._sizes.count_tokens(sent) <= 0.95 * self._room:
            return sent
        self.slides += 1
        while self._first < len(messages) - 1 and self._sizes.count_tokens(sent) > self._room // 2:
            self._first += 1
            while messages[self._first]["role"] == "tool" and self._first < len(messages) - 1:
                self._first += 1
            sent = self._take(messages)
        return sent

    def _take(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        prompt = max(at for at, message in enumerate(messages) if message["role"] == "user")
        system, rest = messages[:1], messages[self._first :]
        if prompt < self._first:
            return [*system, messages[prompt], *rest]
        return [*system, *rest]


def _play_policies(session: dict[str, Any], arguments: argparse.Namespace) -> list[PolicyCost]:
    """What the requests of the session cost if everything is sent, in a sliding window, and with lamina."""
    calls = list(split_calls(session))
    sizes = MessageSizes(counter_for(MODEL), session["tools"])
    slide = _SlidingWindow(arguments.window, sizes)
    everything = [call["messages"] for call in calls]
    slid: list[list[dict[str, Any]]] = []
    slides: list[int] = []
    for number, messages in enumerate(everything):
        before = slide.slides
        slid.append(slide.send(messages))
        if slide.slides > before:
            slides.append(number)
    fitted = _fit_calls(calls, arguments.window)
    cuts = [
        at for at, each in enumerate(fitted) if each.envelope.cut is not None and each.envelope.cut.lowered
    ]
    own = [each.request["messages"] for each in fitted]
    return [
        _price_requests("none", everything, (), sizes, arguments.window),
        _price_requests("sliding", slid, slides, sizes, arguments.window),
        _price_requests(OWN, own, cuts, sizes, arguments.window),
    ]


def _price_requests(
    policy: str,
    requests: Sequence[list[dict[str, Any]]],
    cuts: Sequence[int],
    sizes: MessageSizes,
    window: int,
) -> PolicyCost:
    """What these requests would cost. A cache is simulated by the rules of its provider."""
    cache = simulator(rules_for(MODEL, dialect=CHAT), model=MODEL)
    tallies = []
    for number, messages in enumerate(requests):
        tallies.append(cache.send(sizes.stream(messages, MODEL), at=PACE * number))
    total = sum(tally.total for tally in tallies)
    room = window - window // RESERVED_PART
    return PolicyCost(
        policy=policy,
        price=sum(price_tally(tally, MODEL, dialect=CHAT) or 0.0 for tally in tallies),
        cached=sum(tally.read for tally in tallies) / max(total, 1),
        sizes=tuple(tally.total for tally in tallies),
        cuts=tuple(cuts),
        refused=sum(tally.total > room for tally in tallies),
    )


def _print_question(question: DemoQuestion, arguments: argparse.Namespace) -> None:
    """What the model would have forgotten, and what it gets."""
    seed, window = arguments.seed, arguments.window
    print(f"A coding agent at work, made up (seed {seed}), in a window of {window:,} tokens.")
    print(f"It first reads ops/runbook.md. After {question.calls - 1} requests the user asks:\n")
    print(f"    {QUESTION}\n")
    print("What does the model still know of the file?")
    print(f"  {TITLES['sliding']:<15}  {_describe_sliding(question)}")
    print(paint(f"  {TITLES[OWN]:<15}  {_describe_own(question)}", "good"))
    if question.reminder:
        print(f"      {question.reminder}")


def _describe_sliding(question: DemoQuestion) -> str:
    if question.lost_at:
        return f"nothing: the file left the window at request {question.lost_at}"
    return "the whole file: it never left the window"


def _describe_own(question: DemoQuestion) -> str:
    if question.reminder:
        return f"a reminder of {question.reminder_tokens} tokens before the question, with this line:"
    if not question.cuts:
        return "everything: nothing had to be left out"
    if question.in_sight:
        return "the answer: a digest of the earlier requests has it"
    return "its name, and a handle that recalls it"


def _print_costs(costs: Sequence[PolicyCost]) -> None:
    """One sentence with its price for each policy."""
    print(f"\nWhat the session cost (input, {MODEL}, prices of {AS_OF}):")
    for cost in costs:
        line = f"  {TITLES[cost.policy]:<15}  ${cost.price:.2f}  {_describe_cost(cost)}"
        if cost.refused:
            line = paint(line, "bad")
        elif cost.policy == OWN:
            line = paint(line, "good")
        print(line)


def _print_picture(costs: Sequence[PolicyCost]) -> None:
    """The session as lamina sent it, under the line of what everything would have been."""
    by_policy = {cost.policy: cost for cost in costs}
    own = by_policy[OWN]
    if not own.cuts:
        return
    print(f"\nWhat was sent of each request with lamina, {count_units(len(own.cuts), 'cuts')}:\n")
    print("\n".join(draw_session(own.sizes, by_policy["none"].sizes, own.cuts)))


def _describe_cost(cost: PolicyCost) -> str:
    """What a policy did to the session, in a sentence: refused, nothing, or cuts."""
    if cost.refused:
        return f"{cost.refused} of {len(cost.sizes)} requests are too large and refused"
    if not cost.cuts:
        return "everything fits: nothing is left out"
    return f"{count_units(len(cost.cuts), 'cuts')}, {100 * cost.cached:.1f} % cached"


def _print_next(arguments: argparse.Namespace) -> None:
    print()
    if (arguments.seed, arguments.window) == (SEED, WINDOW):
        print(f"{_AVERAGE}\n")
    print("What did your own sessions cost?   lamina cost ~/.claude/projects")
    print("The same picture of a session?     lamina inspect --demo --open")
