"""Which conversation a request of a client belongs to, and what is stored of it."""

from __future__ import annotations

import json
from itertools import takewhile
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lamina
from lamina import Budget
from lamina.conversations.store import WORKSPACE, ConversationState, decode_state, list_conversations
from lamina.core.tokens import STRICT
from lamina.core.values import Ledger
from lamina.errors import Damaged
from lamina.fitting import Policy
from lamina.stores import MemoryStore
from tests.plain_client import plain_client

Messages = list[dict[str, Any]]


def chat_client(window: int = 4000, *, store: MemoryStore | None = None, **policy: Any) -> Any:
    """A wrapped client of Chat Completions, whose model says nothing."""
    chosen = Policy(budget=Budget(window=window, reserve=0), counter=STRICT, recall="handles", **policy)
    return lamina.wrap(plain_client(lambda _: {}, "chat.completions"), policy=chosen, store=store)


def ask(client: Any, messages: Messages) -> lamina.Fitted:
    """What was sent for a request."""
    answer = client.chat.completions.create(model="m", messages=messages)
    fitted: lamina.Fitted = client.fitted_of(answer)
    return fitted


def history(steps: int, about: str = "", *, system: str = "Be brief.") -> Messages:
    """A system text, a question, and replies of some 300 bytes that name a subject."""
    messages = [{"role": "system", "content": system}, {"role": "user", "content": "Go on."}]
    for step in range(steps):
        messages.append({"role": "assistant", "content": f"{about} {step} " + "and so on, " * 28})
        messages.append({"role": "user", "content": f"More {about} {step}."})
    return messages


def lowered(messages: Messages) -> bool:
    return "recall" in str(messages)


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


def count_requests(store: MemoryStore) -> dict[str, int]:
    """The requests of each conversation that is stored."""

    async def read() -> dict[str, int]:
        return {kept.name: kept.state.requests async for kept in list_conversations(store, WORKSPACE)}

    return anyio.run(read)


@settings(max_examples=25)
@given(requests)
def test_conversations_are_told_apart_by_what_is_said_not_by_how_it_is_written(
    requests: list[tuple[str, list[Turn]]],
) -> None:
    """Forks, edits, regenerated answers, parallel talks; strings that become blocks, markers that move."""
    store, plain = MemoryStore(), Plain()
    policy = Policy(budget=Budget(window=90_000), counter=STRICT)
    client = lamina.wrap(plain_client(lambda _: {}), policy=policy, store=store)
    names: list[str] = []
    counted: dict[str, int] = {}
    for system, texts in requests:
        messages = [as_message(at, turn) for at, turn in enumerate(texts)]
        request: dict[str, Any] = {"model": "claude-opus-4-5", "max_tokens": 9, "messages": messages}
        if system:
            request["system"] = system
        client.messages.create(**request)
        now = count_requests(store)
        [name] = [each for each in now if now[each] != counted.get(each)]
        counted = now
        if name not in names:
            names.append(name)
        assert names.index(name) == plain.find(system, [words for words, _, _ in texts])


@pytest.mark.parametrize(("version", "advice"), [(9, "update lamina"), (0, "export it")])
@pytest.mark.parametrize("part", ["state", "ledger"])
def test_a_stored_state_of_another_version_is_refused(part: str, version: int, advice: str) -> None:
    fields = json.loads(ConversationState(ledger=Ledger(own_tools=("recall",))).encode())
    changed = fields if part == "state" else fields["ledger"]
    assert changed["version"] > 0, "a version that is not stored cannot be told from a later one"
    changed["version"] = version
    with pytest.raises(Damaged, match=f"version {version}; .*{advice}"):
        decode_state(json.dumps(fields).encode())
