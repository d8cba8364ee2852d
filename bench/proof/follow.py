"""One task under one policy: every call is sent, what it needs is looked for, and the cache says the cost.

A request that a provider would refuse, because it is too long or breaks a rule, shows nothing. The full
context is the exception: it is what the others are compared with, so no window holds for it.

Questions about a talk are asked one at a time in the place of its last message, each from the same state. So
none sees what another brought back. The cost is that of the talk, without the questions.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from bench.lab.lamina_policies import LaminaRun
from bench.lab.outcomes import evaluate_walk
from bench.lab.policies import find_policy
from bench.lab.port import Message, PolicyRequest, PolicyRun, ReplayPolicy, Setting, make_setting
from bench.lab.runs import MODELS
from bench.lab.walk import NeededTerms, WalkStep, walk
from bench.peers.catalogue import PEERS
from bench.peers.policies import policy_name
from bench.proof.recalling import Offers, recall_for
from bench.proof.tasks import Need, Task, request_text
from bench.talks import QUESTION_FOR_A_MODEL, is_in_sight, plain_words
from lamina.caches import all_rules
from lamina.core.values import Fold, Ledger
from lamina.costs import Trace
from lamina.costs.logs.message_sizes import MessageSizes
from lamina.costs.logs.model_calls import CHAT, ModelCall, RecordedConversation
from lamina.models.counters import counter_for

FULL = "none"
OWN = "lamina"
WITH_RECALL = "+recall"
COUNT_AS = "gpt-5.4"
TRACE_MODEL = "gpt-5"
RESERVE = 500
"""Tokens that are kept free for the answer; in a small window an eighth of it."""

SHORT_NAMES = {
    "no_reminders": "bench.variants:no_reminders",
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
    """The outcomes of one run, and the request that each need was looked for in."""

    outcomes: tuple[TaskOutcome, ...]
    requests: tuple[SentRequest, ...]


class SentRequest(NamedTuple):
    """One request, without messages if it was refused, its tokens, and lamina's ledger after it."""

    messages: list[Message]
    tokens: int
    ledger: Ledger | None


def find_by_short_name(name: str) -> ReplayPolicy:
    """A policy of the lab, one of this bench, or a peer as `peer:langchain-trim`."""
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
    watch = _Watch(len(task.messages))
    policy = watch.policy(find_by_short_name(name))
    conversation = _as_conversation(task)
    steps = walk(conversation, policy, setting, NeededTerms(conversation, setting.message_sizes))
    evaluated = evaluate_walk(conversation.trace, policy, setting, steps)
    looks = _Looks(task, policy, setting, steps, watch)
    outcome = TaskOutcome(
        task=task.name,
        policy=name,
        window=window,
        rules=rules,
        cost=evaluated.equivalents,
        calls=evaluated.calls,
        cuts=evaluated.cuts,
        refused=sum(looks.is_refused(step.sent, step.tokens, invalid=step.invalid) for step in steps),
        recalls=0,
        peak=max(step.tokens for step in steps),
        seen=tuple(looks.sees(need) for need in task.needs),
    )
    outcomes = [outcome]
    if with_reader and watch.ledgers:
        outcomes.append(_recall_missing(task, outcome, looks))
    requests = tuple(looks.request_of(need) for need in task.needs)
    return FollowedTask(outcomes=tuple(outcomes), requests=requests)


class _Watch:
    """Keeps lamina's ledger by the length of the conversation, and the run as it was before the last call."""

    def __init__(self, last_end: int) -> None:
        self.last_end = last_end
        self.ledgers: dict[int, Ledger] = {}
        self.before_last: PolicyRun | None = None

    def policy(self, policy: ReplayPolicy) -> ReplayPolicy:
        """The same policy, watched."""

        def start(setting: Setting) -> PolicyRun:
            run = policy.start(setting)

            def watched(request: dict[str, Any], idle: float) -> PolicyRequest:
                end = len(request["messages"])
                if end == self.last_end:
                    self.before_last = copy.copy(run)
                sent = run(request, idle)
                if isinstance(run, LaminaRun):
                    self.ledgers[end] = run.ledger
                return sent

            return watched

        return msgspec.structs.replace(policy, start=start)


def _as_conversation(task: Task) -> RecordedConversation:
    """The task as the lab's walk takes it: a call before each answer, and one at the end."""
    trace = Trace(id=task.name, place="", dialect=CHAT, items=task.messages, model=TRACE_MODEL)
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
    """What stands in the request in which each need is looked for. Each is sent and read once."""

    def __init__(
        self, task: Task, policy: ReplayPolicy, setting: Setting, steps: Sequence[WalkStep], watch: _Watch
    ) -> None:
        self.task = task
        self.steps = {step.call.end: step for step in steps}
        self.room = None if policy.name == FULL else setting.room
        self.setting = setting
        self.watch = watch
        self._requests: dict[tuple[int, str], SentRequest] = {}
        self._texts: dict[tuple[int, str], str] = {}

    def is_refused(self, sent: PolicyRequest | None, tokens: int, *, invalid: bool) -> bool:
        """Whether a provider would refuse this request, or none was made."""
        if sent is None or invalid:
            return True
        return self.room is not None and tokens > self.room

    def sees(self, need: Need) -> bool:
        key = self._key_of(need)
        if key not in self._texts:
            self._texts[key] = request_text(self.request_of(need).messages)
        return is_in_sight(need.sought, self._texts[key])

    def request_of(self, need: Need) -> SentRequest:
        """The request of the call that has the need, or the one in which its question is asked."""
        key = self._key_of(need)
        if key not in self._requests:
            end, question = key
            self._requests[key] = self._ask(question) if question else self._read_step(end)
        return self._requests[key]

    def _key_of(self, need: Need) -> tuple[int, str]:
        """The length of the conversation, and the question if it is not what the conversation ends with."""
        is_last = need.end == len(self.task.messages)
        if is_last and need.question != self.task.messages[-1]["content"]:
            return need.end, need.question
        return need.end, ""

    def _read_step(self, end: int) -> SentRequest:
        step = self.steps[end]
        if step.sent is None or self.is_refused(step.sent, step.tokens, invalid=step.invalid):
            return SentRequest([], step.tokens, self.watch.ledgers.get(end))
        return SentRequest(step.sent.messages, step.tokens, self.watch.ledgers.get(end))

    def _ask(self, question: str) -> SentRequest:
        """The request with the question in the place of the last message."""
        run = copy.copy(self.watch.before_last)
        if run is None:
            return SentRequest([], 0, None)
        asked = {"role": "user", "content": QUESTION_FOR_A_MODEL.format(question=question)}
        request: dict[str, Any] = {"model": TRACE_MODEL, "messages": [*self.task.messages[:-1], asked]}
        if self.task.tools:
            request["tools"] = self.task.tools
        try:
            sent = run(request, 0.0)
        except Exception:  # noqa: BLE001 - anyone's code: what it raises is a call that it gave up
            return SentRequest([], 0, None)
        sizes = self.setting.message_sizes
        tokens = sizes.count_tokens(sent.messages)
        ledger = run.ledger if isinstance(run, LaminaRun) else None
        if self.is_refused(sent, tokens, invalid=sizes.is_refused(sent.messages)):
            return SentRequest([], tokens, ledger)
        return SentRequest(sent.messages, tokens, ledger)

    def question_of(self, need: Need) -> str:
        """What the reader has in mind: the question, or the last thing that the user said."""
        if need.question:
            return need.question
        said = [message for message in self.task.messages[: need.end] if message["role"] == "user"]
        return str(said[-1]["content"]) if said else ""


def _recall_missing(task: Task, outcome: TaskOutcome, looks: _Looks) -> TaskOutcome:
    """The same run, with recalls wherever something was missing, and with what they cost.

    Each recall is a call of its own: the request is read again from the cache, and what came back is written.
    What is missing for the same question at the same call shares its recalls.
    """
    setting = looks.setting
    read_share = setting.rules.read_share(setting.model)
    answers_by_question: dict[tuple[int, str], str] = {}
    offers_by_folds: dict[tuple[int, tuple[Fold, ...]], Offers] = {}
    seen = list(outcome.seen)
    recalls = 0
    cost = outcome.cost
    for at, need in enumerate(task.needs):
        if seen[at]:
            continue
        question = looks.question_of(need)
        recalled_words = answers_by_question.get((need.end, question))
        if recalled_words is None:
            sent = looks.request_of(need)
            ledger = sent.ledger or Ledger()
            key = (need.end, ledger.folds)
            if key not in offers_by_folds:
                offers_by_folds[key] = Offers(task.messages[: need.end], ledger)
            tokens = sent.tokens
            recalled = recall_for(
                question,
                sent.messages,
                offers_by_folds[key],
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
