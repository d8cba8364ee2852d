"""Which conversation a request belongs to, and what is kept of it: no server and no SDK."""

from __future__ import annotations

import json
from importlib import import_module
from itertools import chain, takewhile
from threading import Thread
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina import Budget
from lamina.conversations.conversation_store import Conversation, ConversationStore
from lamina.conversations.conversations import CONVERSATIONS, Conversations, _branch_memo
from lamina.conversations.pending_call import PendingCall
from lamina.conversations.remedies import TOO_LONG, MendableRefusal
from lamina.conversations.store import (
    WORKSPACE,
    ConversationState,
    decode_state,
    list_conversations,
    read_record,
)
from lamina.core.tokens import ESTIMATE, STRICT
from lamina.core.values import Calibration, Ledger
from lamina.dialects import DIALECTS, Usage
from lamina.dialects.openai_chat import DIALECT
from lamina.dialects.overflow import Overflow
from lamina.errors import Damaged
from lamina.fitting import Policy, RequestMemo
from lamina.stores import MemoryStore

Messages = list[dict[str, Any]]


def conversations(window: int = 4000, *, store: ConversationStore | None = None) -> Conversations:
    policy = Policy(budget=Budget(window=window, reserve=0), counter=STRICT, recall="handles")
    return Conversations(policy, store=store)


def call(among: Conversations, messages: Messages, *, model: str = "m") -> PendingCall:
    return PendingCall(among, DIALECT, {"model": model, "messages": messages})


def sent(among: Conversations, messages: Messages, *, model: str = "m") -> Messages:
    pending = call(among, messages, model=model)
    pending.finish()
    messages_sent: Messages = pending.request["messages"]
    return messages_sent


def history(steps: int, about: str = "", *, system: str = "Be brief.") -> Messages:
    """A system text, a question, and replies of some 300 bytes that name a subject."""
    messages = [{"role": "system", "content": system}, {"role": "user", "content": "Go on."}]
    for step in range(steps):
        messages.append({"role": "assistant", "content": f"{about} {step} " + "and so on, " * 28})
        messages.append({"role": "user", "content": f"More {about} {step}."})
    return messages


def _only(among: Conversations) -> Conversation:
    [conversation] = among.by_key.values()
    return conversation


def lowered(messages: Messages) -> bool:
    return "recall" in str(messages)


def test_a_request_continues_its_conversation_among_others_that_began_alike() -> None:
    among, alone = conversations(), conversations()
    for steps in range(40):
        mine = sent(among, history(steps, "tea"))
        sent(among, history(steps, "coffee"))
        assert mine == sent(alone, history(steps, "tea"))
    assert lowered(mine)


def test_an_edited_history_keeps_what_was_lowered_before_the_edit() -> None:
    among = conversations()
    for steps in range(1, 14):
        before = sent(among, history(steps, "tea"))
    edited = [*history(13, "tea")[:-1], {"role": "user", "content": "No, wait."}]
    assert lowered(before)
    assert sent(among, edited)[:-1] == before[:-1]
    assert sent(among, history(13, "tea")) == before


def test_another_system_text_is_the_same_conversation() -> None:
    """A client that writes the time into it would otherwise begin anew with each request."""
    among = conversations()
    for steps in range(1, 14):
        before = sent(among, history(steps, "tea"))
    assert sent(among, history(13, "tea", system="It is noon."))[1:] == before[1:]
    assert sent(among, history(13, "tea")) == before
    assert len(among.by_key) == 1


def test_a_fork_takes_nothing_over_that_it_does_not_share() -> None:
    """What one branch lowered stands in full in another that says it too, and has room for it."""
    among = conversations()
    for steps in range(1, 14):
        first = sent(among, history(steps, "tea"))
    assert lowered(first)
    again = history(6, "tea")[-2:]
    assert str(again[0]["content"]) not in str(first)
    assert sent(among, [*history(1, "tea"), *history(1, "milk")[2:], *again])[-2:] == again


def test_a_call_that_failed_leaves_no_trace() -> None:
    among = conversations()
    call(among, history(20, "tea"))
    assert not among.by_key
    assert among.last_fitted() is None


def test_the_one_not_used_for_longest_is_forgotten() -> None:
    among = conversations()
    for number in range(CONVERSATIONS + 1):
        sent(among.with_name(f"number {number}"), history(0))
    assert len(among.by_key) == CONVERSATIONS
    assert among.with_name("number 0").last_fitted() is None
    assert among.with_name("number 1").last_fitted() is not None


def test_an_overflow_is_learnt_for_its_model_and_conversation_only() -> None:
    among = conversations(window=20_000)
    refused = call(among.with_name("a"), history(20, "tea"))
    assert refused.mend(MendableRefusal(TOO_LONG, Overflow(asked=9000, limit=3000)))
    assert lowered(refused.request["messages"])
    refused.finish()
    assert lowered(sent(among.with_name("a"), history(21, "tea")))
    assert not lowered(sent(among.with_name("b"), history(20, "tea")))
    assert lowered(sent(among.with_name("a"), history(20, "coffee")))
    assert not lowered(sent(among.with_name("a"), history(20, "milk")[2:], model="larger"))


def test_an_explicit_reserve_yields_to_a_smaller_window() -> None:
    among = Conversations(
        Policy(budget=Budget(window=20_000, reserve=4000), counter=STRICT, recall="handles")
    )
    refused = call(among, history(20, "tea"))
    assert refused.mend(MendableRefusal(TOO_LONG, Overflow(asked=9000, limit=3000)))


def test_when_the_limit_cannot_be_met_the_smallest_request_is_tried() -> None:
    among = conversations(window=20_000)
    refused = call(among, [*history(9, "tea"), {"role": "user", "content": "x" * 2000}])
    assert refused.mend(MendableRefusal(TOO_LONG, Overflow(asked=9000, limit=300)))
    assert len(str(refused.request)) < 3000
    assert not refused.mend(MendableRefusal(TOO_LONG, Overflow(asked=3000, limit=300)))


def test_of_two_calls_at_once_neither_is_lost() -> None:
    among = conversations()
    sent(among, history(5, "tea"))
    left, right = call(among, history(9, "tea")), call(among, [*history(8, "tea"), *history(1, "milk")[2:]])
    left.finish()
    right.finish()
    assert sorted(len(conversation.digests.digests) for conversation in among.by_key.values()) == [19, 19]


@pytest.mark.parametrize("steps_before", [5, 12])
def test_of_two_calls_at_once_both_are_stored_with_all_that_is_lowered_in_them(steps_before: int) -> None:
    """Also with what was lowered before they parted: the second one begins a record of its own."""
    memory = MemoryStore()
    store = ConversationStore(memory)
    among = conversations(store=store)
    first = call(among, history(steps_before, "tea"))
    first.finish()
    assert bool(first.fitted.ledger.cuts) is (steps_before == 12)
    pending = [call(among, history(16, "tea")), call(among, [*history(15, "tea"), *history(1, "milk")[2:]])]
    for each in pending:
        each.note_sent()
        each.finish()
    store.close()

    async def read() -> list[tuple[int, int]]:
        kept = [each async for each in list_conversations(memory, WORKSPACE)]
        records = [await read_record(memory, WORKSPACE, each.name) for each in kept]
        return [(len(record.calls), len(record.segments)) for record in records]

    ledgers = [each.fitted.ledger for each in pending]
    counts = [len({*chain(*(fold.covers for fold in ledger.folds)), *ledger.lines}) for ledger in ledgers]
    assert sorted(anyio.run(read)) == [(0, counts[1]), (2, counts[0])]


def test_a_cut_is_not_forgotten_for_a_call_that_began_before_it() -> None:
    among = conversations().with_name("a")
    early, late = call(among, history(2, "tea")), call(among, history(13, "tea"))
    late.finish()
    early.finish()
    assert among.last_fitted() is not None
    assert len(call(among, history(14, "tea")).fitted.ledger.cuts) == 1


def test_messages_read_beside_another_conversation_are_not_compared_by_equality() -> None:
    """To Python `1` equals `true`. What was read beside others may hold the one for the other."""
    among = conversations()
    claude = DIALECTS["anthropic"]

    def request(system: str, steps: int) -> dict[str, Any]:
        messages = history(steps, "tea")[1:]
        return {"model": "claude-opus-5-5", "max_tokens": 9, "system": system, "messages": messages}

    for system, steps in (("One.", 0), ("Two.", 0), ("One.", 3)):
        PendingCall(among, claude, request(system, steps)).finish()
    assert len(among.by_key) == 2
    assert among.find(request("One.", 4), claude).parse_memo.keeps_equality
    assert not among.find(request("Two.", 4), claude).parse_memo.keeps_equality


def test_a_named_conversation_that_changes_its_dialect_is_read_as_if_it_were_new() -> None:
    """Both dialects have messages of this shape, and only one of them knows the picture in it."""
    among, alone = (conversations().with_name("a") for _ in range(2))
    request = {"model": "m", "messages": [{"role": "user", "content": "Look.", "images": ["aGVsbG8="]}]}
    PendingCall(among, DIALECT, request).finish()
    for each in (among, alone):
        PendingCall(each, DIALECTS["ollama"], request).finish()
    assert _only(among).fitted.log == _only(alone).fitted.log
    assert _only(among).digests.chain == _only(alone).digests.chain


def test_what_two_threads_might_write_at_once_has_one_lock() -> None:
    """Two calls at once share the memo of the conversation that they continue, and a fork has its own."""
    among = conversations()
    sent(among, history(5, "tea"))
    for pending in [
        call(among, history(9, "tea")),
        call(among, [*history(8, "tea"), *history(1, "milk")[2:]]),
    ]:
        pending.finish()
    sent(among, [*history(3, "tea"), *history(1, "milk")[2:]])
    assert len(among.by_key) == 3
    shared = {(id(each.memo.build), id(each.memo_lock)) for each in among.by_key.values()}
    assert len({build for build, _ in shared}) == len({lock for _, lock in shared}) == len(shared)


def test_threads_may_share_a_client() -> None:
    among = conversations()
    failed: list[tuple[str, int]] = []

    def talk(about: str) -> None:
        alone = conversations()
        failed.extend(
            (about, steps)
            for steps in range(16)
            if sent(among, history(steps, about)) != sent(alone, history(steps, about))
        )

    threads = [Thread(target=talk, args=(about,)) for about in ("tea", "coffee", "milk")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_an_iterator_is_read_once() -> None:
    messages = history(3, "tea")
    among = conversations()
    pending = PendingCall(among, DIALECT, {"model": "m", "messages": iter(messages)})
    assert pending.request["messages"] == messages


@pytest.mark.parametrize("messages", ["Hello", None, [{"role": "nobody"}]])
def test_what_is_no_request_is_refused_with_its_place(messages: Any) -> None:
    with pytest.raises(ValueError, match="messages"):
        call(conversations(), messages)


def read_messages(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Which messages are read from scratch, from here on."""
    seen: list[int] = []
    parsing = import_module("lamina.dialects.openai_chat.parse")
    read = parsing.read_message

    def counting(message: Any, index: int, calls: Any) -> Any:
        seen.append(index)
        return read(message, index, calls)

    monkeypatch.setattr(parsing, "read_message", counting)
    return seen


@pytest.mark.parametrize("named", [True, False])
def test_of_a_growing_request_only_what_is_new_is_read(
    monkeypatch: pytest.MonkeyPatch, *, named: bool
) -> None:
    everyone = conversations(window=90_000)
    sent(everyone, history(50, "coffee"))
    among = everyone.with_name("mine") if named else everyone
    sent(among, history(50, "tea"))
    seen = read_messages(monkeypatch)
    for steps in range(51, 60):
        sent(among, history(steps, "tea"))
    assert seen == list(range(102, 120))


def test_after_an_edit_only_what_follows_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    among = conversations(window=90_000)
    sent(among, history(50, "tea"))
    seen = read_messages(monkeypatch)
    sent(among, [*history(50, "tea")[:80], {"role": "user", "content": "No, wait."}])
    assert seen == [80]


def test_a_conversation_may_go_on_in_another_dialect_of_the_same_client() -> None:
    """What was remembered of parsing one wire format means nothing in another."""
    for among in (conversations(), conversations().with_name("a")):
        sent(among, history(9, "tea"))
        items = [message for message in history(9, "tea") if message["role"] != "system"]
        pending = PendingCall(among, DIALECTS["openai_responses"], {"model": "m", "input": items})
        pending.finish()
        assert pending.request["input"] == items
        assert lowered(sent(among, history(13, "tea")))


def test_reports_of_an_earlier_call_do_not_stand_for_a_later_one() -> None:
    among = conversations().with_name("a")
    first = call(among, history(2, "tea"))
    first.finish(usage=Usage(input=11))
    second = call(among, history(3, "tea"))
    second.finish(usage=Usage(input=22), is_whole=False)
    first.record_usage(Usage(input=99))
    assert _only(among).usage == Usage(input=22)
    second.record_usage(Usage(input=33))
    assert _only(among).usage == Usage(input=33)


def test_system_messages_that_come_later_are_part_of_what_was_said() -> None:
    """Coding agents add reminders as they go: that is the same conversation."""
    among = conversations()
    messages = history(2, "tea")
    sent(among, messages)
    messages += [{"role": "system", "content": "Be kind."}, *history(1, "milk")[2:]]
    sent(among, messages)
    assert len(among.by_key) == 1
    sent(among, [*messages, {"role": "system", "content": "Be quick."}])
    assert len(among.by_key) == 1
    without = [message for message in messages if message["content"] != "Be kind."]
    sent(among, [*without, {"role": "user", "content": "More."}])
    assert len(among.by_key) == 2


Turn = tuple[str, bool, bool]
"""The words of a message, whether it is a list of blocks, and whether a cache marker stands on it."""


def as_message(at: int, turn: Turn) -> dict[str, Any]:
    words, in_blocks, marked = turn
    block: dict[str, Any] = {"type": "text", "text": words}
    if marked:
        block["cache_control"] = {"type": "ephemeral"}
    role = "assistant" if at % 2 else "user"
    return {"role": role, "content": [block] if in_blocks or marked else words}


turns = st.tuples(st.sampled_from("abc"), st.booleans(), st.booleans())
requests = st.lists(
    st.tuples(st.sampled_from(("", "Be brief.", "Be kind.")), st.lists(turns, min_size=1, max_size=9)),
    min_size=2,
    max_size=12,
)


class Plain:
    """Which conversation a request belongs to, by its words alone: the rule, as it is meant.

    Every second text is an answer, so the first text is what was said before the first answer.
    """

    def __init__(self) -> None:
        self.histories: dict[int, tuple[str, list[str]]] = {}

    def find(self, system: str, words: list[str]) -> int:
        """The number of the conversation: that of the nearest, if the request goes on from all of it."""
        ranked = []
        for order, (number, (its_system, its_words)) in enumerate(self.histories.items()):
            if its_words[0] != words[0]:
                continue
            pairs = takewhile(lambda pair: pair[0] == pair[1], zip(words, its_words, strict=False))
            shared = len(list(pairs))
            same_system = its_system == system
            continues = shared == len(its_words) and (shared > 1 or same_system)
            ranked.append((shared, continues, same_system, len(its_words), order, number))
        under_same_system = [candidate for candidate in ranked if candidate[2]]
        nearest = max(under_same_system or ranked, default=(0, False))
        if not nearest[1]:
            nearest = max(ranked, default=(0, False))
        number = len(self.histories)
        if nearest[1]:
            number = nearest[-1]
        self.histories.pop(number, None)  # the one that was used last stands last
        self.histories[number] = (system, words)
        return number


@given(requests)
def test_conversations_are_told_apart_by_what_is_said_not_by_how_it_is_written(
    requests: list[tuple[str, list[Turn]]],
) -> None:
    """Forks, edits, regenerated answers, parallel talks; strings that become blocks, markers that move."""
    among, plain = conversations(window=90_000), Plain()
    for system, texts in requests:
        messages = [as_message(at, turn) for at, turn in enumerate(texts)]
        request: dict[str, Any] = {"model": "claude-opus-4-5", "max_tokens": 9, "messages": messages}
        if system:
            request["system"] = system
        PendingCall(among, DIALECTS["anthropic"], request).finish()
        newest, conversation = list(among.by_key.items())[-1]
        number = plain.find(system, [words for words, _, _ in texts])
        assert sorted(among.by_key, key=int).index(newest) == number
        assert len(conversation.digests.digests) == len(texts)


def test_usage_that_comes_late_is_that_of_its_own_call_and_not_of_a_later_one() -> None:
    """A stream says what it took at its end: by then another call may have been answered."""
    among = Conversations(Policy(budget=Budget(window=100_000, reserve=0), counter=ESTIMATE)).with_name("a")

    def learnt() -> Calibration | None:
        """What the next call is calibrated with."""
        call(among, history(3, "tea")).finish()
        last = among.last_fitted()
        return last.ledger.calibration if last else None

    def answered(*, early: int, late: int) -> tuple[PendingCall, PendingCall]:
        among.by_key.clear()
        first, second = call(among, history(1, "tea")), call(among, history(2, "tea"))
        first.finish(usage=Usage(input=early), is_whole=False)
        second.finish(usage=Usage(input=late), is_whole=False)
        return first, second

    answered(early=0, late=0)
    assert learnt() is None
    first, second = answered(early=0, late=900)
    before = learnt()
    first, second = answered(early=0, late=900)
    first.record_usage(Usage(input=77))  # too late: the second call is what counts
    assert learnt() == before
    first, second = answered(early=0, late=0)
    second.record_usage(Usage(input=900))
    assert learnt() == before


def test_usage_of_a_conversation_that_was_forgotten_brings_nothing_back() -> None:
    among = conversations().with_name("a")
    pending = call(among, history(1, "tea"))
    pending.finish()
    among.by_key.clear()
    pending.record_usage(Usage(input=100))
    assert not among.by_key


def test_without_the_recall_tool_every_answer_is_the_callers() -> None:
    pending = call(conversations(), [{"role": "user", "content": "Hi"}])
    function = {"name": "recall", "arguments": '{"key": "k1"}'}
    message = {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": function}]}
    assert not pending.take_answer(DIALECT.answers.absorb({"choices": [{"message": message}]}))


HELLO = {"role": "user", "content": "Hello."}


@pytest.mark.parametrize(
    ("dialect", "request_"),
    [
        ("anthropic", {"model": "claude-opus-5-5", "messages": [HELLO]}),
        ("openai_chat", {"model": "gpt-5", "messages": [HELLO]}),
        ("openai_responses", {"model": "gpt-5", "input": [HELLO]}),
        ("gemini", {"contents": [{"role": "user", "parts": [{"text": "Hello."}]}]}),
        ("ollama", {"model": "llama3.2", "messages": [HELLO]}),
    ],
)
def test_a_branch_does_not_parse_anew_what_its_origin_has_parsed(dialect: str, request_: Any) -> None:
    memo = RequestMemo()
    parse = DIALECTS[dialect].wire.parse
    first = parse(request_, memo=memo.parse).log
    again = parse(request_, memo=_branch_memo(memo).parse).log
    assert len(first) == 1
    assert again[0] is first[0]


@pytest.mark.parametrize(("version", "advice"), [(9, "update lamina"), (0, "export it")])
@pytest.mark.parametrize("part", ["state", "ledger"])
def test_a_stored_state_of_another_version_is_refused(part: str, version: int, advice: str) -> None:
    fields = json.loads(ConversationState(ledger=Ledger(own_tools=("recall",))).encode())
    changed = fields if part == "state" else fields["ledger"]
    assert changed["version"] > 0, "a version that is not stored cannot be told from a later one"
    changed["version"] = version
    with pytest.raises(Damaged, match=f"version {version}; .*{advice}"):
        decode_state(json.dumps(fields).encode())
