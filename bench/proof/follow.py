"""One task under one policy: every call is sent, what it needs is looked for, and the cache says the cost.

A request that a provider would refuse, because it is too long or breaks a rule, shows nothing. The full
context is the exception: it is what the others are compared with, so no window holds for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from bench.peers.catalogue import PEERS
from bench.peers.policies import policy_name
from bench.proof.recalling import Offers, recall_for
from bench.proof.tasks import Need, Task, request_text
from bench.talks import is_in_sight, plain_words
from lamina.caches import all_rules
from lamina.core.values import Ledger
from lamina.models.counters import counter_for
from lamina.replay.message_sizes import MessageSizes
from lamina.replay.model_calls import CHAT, ModelCall, RecordedConversation
from lamina.replay.needed_names import NeededTerms
from lamina.replay.outcomes import evaluate_walk
from lamina.replay.policies import find_policy
from lamina.replay.policies.lamina_policies import LaminaRun
from lamina.replay.policies.port import Message, PolicyRequest, PolicyRun, ReplayPolicy, Setting, make_setting
from lamina.replay.runs import MODELS
from lamina.replay.values import Trace
from lamina.replay.walk import WalkStep, walk

FULL = "none"
OWN = "lamina"
WITH_RECALL = "+recall"
COUNT_AS = "gpt-5.4"
RESERVE = 500
"""Tokens that are kept free for the answer; in a small window an eighth of it."""

SHORT_NAMES = {
    "clear_then_drop": "bench.clearing:clear_then_drop",
    "provider_clearing": "bench.clearing:provider_clearing",
}


class TaskOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one policy made of one task. `seen` has one flag for each need, in the order of the task.

    `cost` is in input tokens at full price, as the provider's rules count what is read from the cache and
    written to it. `refused` are requests that were too long, invalid, or given up. `peak` is the longest one.
    """

    task: str
    policy: str
    window: int
    rules: str
    cost: float
    calls: int
    cuts: int
    refused: int
    recalls: int
    peak: int
    seen: tuple[bool, ...]


class FollowedTask(msgspec.Struct, frozen=True, kw_only=True):
    """The outcomes of one run, the last request as it was sent, and lamina's ledger after it."""

    outcomes: tuple[TaskOutcome, ...]
    last_sent: list[Message]
    ledger: Ledger | None = None


def find_by_short_name(name: str) -> ReplayPolicy:
    """A policy of `lamina replay`, one of this bench, or a peer as `peer:langchain-trim`."""
    kind, separator, peer = name.partition(":")
    if separator and kind == "peer" and peer in PEERS:
        return find_policy(policy_name(peer))
    return find_policy(SHORT_NAMES.get(name, name))


def setting_of_task(task: Task, window: int, rules: str) -> Setting:
    """The sizes of a window, in tokens of `COUNT_AS`."""
    return make_setting(
        window,
        MessageSizes(counter_for(COUNT_AS), task.tools),
        all_rules()[rules],
        reserve=min(RESERVE, window // 8),
        model=MODELS.get(rules, ""),
    )


def count_all(task: Task) -> int:
    """The tokens of the whole conversation."""
    return MessageSizes(counter_for(COUNT_AS), task.tools).count_tokens(task.messages)


def follow(task: Task, name: str, window: int, rules: str, *, with_reader: bool = True) -> FollowedTask:
    """Send every call of a task. Of lamina, a second outcome has what a reader recalls, if one is wanted."""
    setting = setting_of_task(task, window, rules)
    ledgers: dict[int, Ledger] = {}
    policy = _keep_ledgers(find_by_short_name(name), ledgers)
    conversation = _as_conversation(task)
    steps = walk(conversation, policy, setting, NeededTerms(conversation, setting.message_sizes))
    evaluated = evaluate_walk(conversation.trace, policy, setting, steps)
    looks = _Looks(task, policy, setting, steps)
    outcome = TaskOutcome(
        task=task.name,
        policy=policy.name,
        window=window,
        rules=rules,
        cost=evaluated.equivalents,
        calls=evaluated.calls,
        cuts=evaluated.cuts,
        refused=sum(looks.is_refused(step) for step in steps),
        recalls=0,
        peak=max(step.tokens for step in steps),
        seen=tuple(looks.sees(need) for need in task.needs),
    )
    last_sent = steps[-1].sent.messages if steps[-1].sent is not None else []
    if not ledgers:
        return FollowedTask(outcomes=(outcome,), last_sent=last_sent)
    outcomes = [outcome]
    if with_reader:
        outcomes.append(_recall_missing(task, outcome, looks, ledgers))
    return FollowedTask(outcomes=tuple(outcomes), last_sent=last_sent, ledger=ledgers[steps[-1].call.end])


def _keep_ledgers(policy: ReplayPolicy, ledgers: dict[int, Ledger]) -> ReplayPolicy:
    """The policy; if it is lamina's, the ledger after each call is kept by the length of its conversation."""

    def start(setting: Setting) -> PolicyRun:
        run = policy.start(setting)
        if not isinstance(run, LaminaRun):
            return run

        def keep(request: dict[str, Any], idle: float) -> PolicyRequest:
            sent = run(request, idle)
            ledgers[len(request["messages"])] = run.ledger
            return sent

        return keep

    return msgspec.structs.replace(policy, start=start)


def _as_conversation(task: Task) -> RecordedConversation:
    """The task as the lab's walk takes it: a call before each answer, and one at the end."""
    trace = Trace(id=task.name, place="", dialect=CHAT, items=task.messages, model="gpt-5")
    calls = tuple(ModelCall(end=end, answer="") for end in _list_ends(task))
    return RecordedConversation(trace=trace, messages=task.messages, tools=task.tools, calls=calls)


def _list_ends(task: Task) -> Iterator[int]:
    previous_role = "assistant"
    for at, message in enumerate(task.messages):
        if message["role"] == "assistant" and previous_role != "assistant":
            yield at
        previous_role = message["role"]
    if previous_role != "assistant":
        yield len(task.messages)


class _Looks:
    """What stands in the request of each call, read once."""

    def __init__(self, task: Task, policy: ReplayPolicy, setting: Setting, steps: Sequence[WalkStep]) -> None:
        self.task = task
        self.steps = {step.call.end: step for step in steps}
        self.room = None if policy.name == FULL else setting.room
        self.setting = setting
        self._texts: dict[int, str] = {}

    def is_refused(self, step: WalkStep) -> bool:
        """Whether a provider would refuse this request, or none was made."""
        if step.sent is None or step.invalid:
            return True
        return self.room is not None and step.tokens > self.room

    def sees(self, need: Need) -> bool:
        return is_in_sight(need.sought, self.text(need.end))

    def text(self, end: int) -> str:
        """The plain words of the request with so many messages before it; none if it was refused."""
        text = self._texts.get(end)
        if text is None:
            text = request_text(self.sent(end))
            self._texts[end] = text
        return text

    def sent(self, end: int) -> list[Message]:
        step = self.steps[end]
        if step.sent is None or self.is_refused(step):
            return []
        return step.sent.messages

    def question_of(self, need: Need) -> str:
        """What the reader has in mind: the question, or the last thing that the user said."""
        if need.question:
            return need.question
        said = [message for message in self.task.messages[: need.end] if message["role"] == "user"]
        return str(said[-1]["content"]) if said else ""


def _recall_missing(
    task: Task, outcome: TaskOutcome, looks: _Looks, ledgers: dict[int, Ledger]
) -> TaskOutcome:
    """The same run, with recalls wherever something was missing, and with what they cost.

    Each recall is a call of its own: the request is read again from the cache, and what came back is written.
    What is missing for the same question at the same call shares its recalls.
    """
    setting = looks.setting
    read_share = setting.rules.read_share(setting.model)
    answers_by_question: dict[tuple[int, str], str] = {}
    offers_by_end: dict[int, Offers] = {}
    seen = list(outcome.seen)
    recalls = 0
    cost = outcome.cost
    for at, need in enumerate(task.needs):
        if seen[at]:
            continue
        question = looks.question_of(need)
        recalled_words = answers_by_question.get((need.end, question))
        if recalled_words is None:
            if need.end not in offers_by_end:
                offers_by_end[need.end] = Offers(task.messages[: need.end], ledgers[need.end])
            tokens = looks.steps[need.end].tokens
            recalled = recall_for(
                question,
                looks.sent(need.end),
                offers_by_end[need.end],
                space=setting.room - tokens,
                counter=setting.message_sizes.counter,
            )
            recalled_words = plain_words("\n".join(each.text for each in recalled))
            answers_by_question[need.end, question] = recalled_words
            recalls += len(recalled)
            for each in recalled:
                cost += read_share * tokens + setting.rules.write * each.tokens
                tokens += each.tokens
        seen[at] = is_in_sight(need.sought, recalled_words)
    return msgspec.structs.replace(
        outcome, policy=f"{outcome.policy}{WITH_RECALL}", seen=tuple(seen), recalls=recalls, cost=cost
    )
