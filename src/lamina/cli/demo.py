"""`lamina demo`: a long session of an agent, a question about its beginning, and what each policy costs.

The session is made up, no model is asked and nothing leaves the machine. The figures are simulated.
"""

from __future__ import annotations

import argparse
from typing import Any

import msgspec

from lamina.caches import rules_for
from lamina.cli.output import emit, paint, progress
from lamina.cli.parser import add_json, seed_number, window_size
from lamina.cli.recording import MODEL, make_recording, split_calls
from lamina.cli.text_picture import draw_session
from lamina.core.text.clipping import count_units
from lamina.core.values import Budget, Ledger
from lamina.core.wording import text_of
from lamina.fitting.policy import Policy
from lamina.fitting.request import Fitted, RequestMemo, fit_request
from lamina.models.counters import counter_for
from lamina.replay.account_columns import format_percent
from lamina.replay.account_sums import Total, sum_outcomes
from lamina.replay.message_sizes import MessageSizes
from lamina.replay.policies.plain import Sliding
from lamina.replay.policies.port import RESERVED_PART, make_setting
from lamina.replay.runs import replay
from lamina.replay.values import ReplayAccount, Trace

SEED, TURNS, WINDOW = 4, 14, 32_000
CHAT, OWN = "openai_chat", "lamina"
TITLES = {
    "none": "send everything",
    "drop_oldest": "drop the oldest",
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
window. It loses no needed name; the sliding window loses 23 of 240."""
"""A test that takes a minute measures these figures."""

_EXAMPLES = """\
The session is made up from its seed. Whether lamina is also the cheapest depends on the session: try several.

examples:
  lamina demo
  lamina demo --seed 6 --window 24000
  lamina demo --json | jq '.totals'

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
    add_json(parser, "the account of every policy, and what became of the question")


def run(arguments: argparse.Namespace) -> int:
    """Play a made-up session under each policy, ask about its beginning, and print what each costs."""
    session = make_session(arguments.seed)
    with progress("playing a made-up session"):
        question = _ask(session, arguments.window)
        account = _replay_policies(session, arguments)
    if arguments.json:
        emit(
            {
                "seed": arguments.seed,
                "turns": TURNS,
                "window": arguments.window,
                "totals": msgspec.to_builtins(sum_outcomes(account.outcomes)),
                "question": msgspec.to_builtins(question),
            }
        )
    else:
        _print_question(question, arguments)
        _print_costs(account)
        _print_picture(account)
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
    fitted = _fit_calls(calls, window)
    reminder, tokens = _find_reminder(fitted)
    return DemoQuestion(
        calls=len(calls),
        cuts=len(fitted.ledger.cuts),
        reminder=reminder,
        reminder_tokens=tokens,
        in_sight=FACT in str(fitted.request["messages"]),
        lost_at=_find_loss(calls, window),
    )


def _fit_calls(calls: list[dict[str, Any]], window: int) -> Fitted:
    """The last request, after all requests before it."""
    rules = rules_for(MODEL, dialect=CHAT)
    policy = Policy(budget=Budget(window=window, reserve=window // RESERVED_PART), rules=rules)
    memo = RequestMemo()
    ledger = Ledger()
    for call in calls:
        fitted = fit_request(call, dialect=CHAT, ledger=ledger, policy=policy, memo=memo)
        ledger = fitted.ledger
    return fitted


def _find_reminder(fitted: Fitted) -> tuple[str, int]:
    """The quoted line with the fact, and the tokens of the reminder that has it."""
    for entry in fitted.envelope.entries:
        if entry.segment.kind != "reminder":
            continue
        for line in text_of(entry.parts).splitlines():
            if FACT in line:
                return line.strip(), entry.tokens
    return "", 0


def _find_loss(calls: list[dict[str, Any]], window: int) -> int:
    """The first request of a sliding window that does not have the runbook; 0 if all later ones have it."""
    sizes = MessageSizes(counter_for(MODEL), calls[0]["tools"])
    slide = Sliding(make_setting(window, sizes, rules_for(MODEL, dialect=CHAT), model=MODEL))
    for number, call in enumerate(calls, start=1):
        contents = [message["content"] for message in slide(call, 0.0).messages]
        if number > 1 and RUNBOOK not in contents:
            return number
    return 0


def _replay_policies(session: dict[str, Any], arguments: argparse.Namespace) -> ReplayAccount:
    trace = Trace(
        id=f"made up, seed {arguments.seed}",
        place="lamina demo",
        dialect=CHAT,
        source="demo",
        model=MODEL,
        items=session["messages"],
        head={"tools": session["tools"]},
    )
    return replay(
        [trace],
        policies=tuple(TITLES),
        windows=[arguments.window],
        rules=[rules_for(MODEL, dialect=CHAT).name],
        jobs=1,
        points=True,
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


def _print_costs(account: ReplayAccount) -> None:
    """One sentence with its price for each policy."""
    print(f"\nWhat the session cost (input, {MODEL}, {account.as_of}), and the names that answers")
    print("needed and could neither see nor recall:")
    for total in sum_outcomes(account.outcomes):
        line = f"  {TITLES[total.policy]:<15}  ${total.price or 0.0:.2f}  {_describe_total(total)}"
        if total.refused:
            line = paint(line, "bad")
        elif total.policy == OWN:
            line = paint(line, "good")
        print(line)


def _print_picture(account: ReplayAccount) -> None:
    """The session as lamina sent it, under the line of what everything would have been."""
    points = {outcome.policy: outcome.points for outcome in account.outcomes}
    own_points = points[OWN]
    cuts = [number for number, point in enumerate(own_points) if point.cut]
    if not cuts:
        return
    print(f"\nWhat was sent of each request with lamina, {count_units(len(cuts), 'cuts')}:\n")
    sent = [point.tokens for point in own_points]
    whole = [point.tokens for point in points["none"]]
    print("\n".join(draw_session(sent, whole, cuts)))


def _describe_total(total: Total) -> str:
    """What a policy did to the session, in a sentence: refused, nothing, or cuts and what is missing."""
    if total.refused:
        return f"{total.refused} of {total.calls} requests are too large and refused"
    if not total.cuts:
        return "everything fits: nothing is left out"
    lost = total.needed - total.recallable
    facts = [
        count_units(total.cuts, "cuts"),
        f"{format_percent(total.cached)} cached",
        f"{lost} of {total.needed:,} names lost",
    ]
    if total.recalls:
        facts.append(count_units(total.recalls, "recalls"))
    return ", ".join(facts)


def _print_next(arguments: argparse.Namespace) -> None:
    print()
    if (arguments.seed, arguments.window) == (SEED, WINDOW):
        print(f"{_AVERAGE}\n")
    print("What did your own sessions cost?   lamina cost ~/.claude/projects")
    print("The same picture of a session?     lamina inspect --demo --open")
