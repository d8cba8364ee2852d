"""With `users="kept"` every message of the user leaves as it came, or nothing leaves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina import Budget, BudgetExceeded, Policy, fit_request
from lamina.core.history_window import LastN
from lamina.core.tokens import BYTES4
from lamina.fitting import Fitted

KEPT = Policy(users="kept", counter=BYTES4)
PICTURE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{'iVBORw0KGgo' * 900}"}}

Json = dict[str, Any]


def says(content: Any) -> Json:
    return {"role": "user", "content": content}


def replies(words: int) -> list[Json]:
    return [{"role": "assistant", "content": f"The port is {8_000 + words}. " + "so I said before " * words}]


def reads(words: int, *, name: str = "read") -> list[Json]:
    call = {"id": f"c{words}", "type": "function", "function": {"name": name, "arguments": '{"n": 1}'}}
    result = {"role": "tool", "tool_call_id": f"c{words}", "content": "a line of a file\n" * words}
    return [{"role": "assistant", "content": None, "tool_calls": [call]}, result]


TALKS: Mapping[str, list[list[Json]]] = {
    "digests": [[says(f"Use port {n}. " * 3), *replies(60)] for n in range(30)],
    "shortened": [[says(f"Read this: {n}. " * 200), *replies(9), *reads(90)] for n in range(6)],
    "pictures": [
        [says([{"type": "text", "text": f"Picture {n}"}, PICTURE]), *replies(150)] for n in range(8)
    ],
    "equal": [[says("Go on."), *replies(100)] for _ in range(40)],
}


def as_sent(request: Mapping[str, Any]) -> list[Json]:
    return [message for message in request["messages"] if message["role"] == "user"]


def check_kept(messages: list[Json], fitted: Fitted) -> None:
    """The user's messages are there, in order; digests in their role may stand between."""
    sent = iter(as_sent(fitted.request))
    assert all(message in sent for message in as_sent({"messages": messages}))


@pytest.mark.parametrize("name", TALKS)
@pytest.mark.parametrize("history", [None, LastN(4), LastN(2, slack=0, digest=None)])
@pytest.mark.parametrize(("remind", "recall"), [("auto", "handles"), ("off", "off")])
def test_no_way_of_a_cut_lowers_a_user(name: str, history: LastN | None, remind: Any, recall: Any) -> None:
    policy = Policy(users="kept", counter=BYTES4, history=history, remind=remind, recall=recall)
    messages = [message for turn in TALKS[name] for message in turn]
    asks: Json = {"model": "gpt-4o", "messages": [*messages, says("Which port was it, 8030?")]}
    default = fit_request(asks, budget=Budget(window=6_000, reserve=0), policy=Policy(counter=BYTES4))
    users = fit_request({**asks, "messages": as_sent(asks)}, budget=100_000, policy=KEPT).envelope.tokens
    room = users + 45 * len(messages)
    assert len(as_sent(asks)) > sum(message in as_sent(asks) for message in as_sent(default.request))
    fitted = fit_request(asks, budget=Budget(window=room, reserve=0), policy=policy)
    assert fitted.envelope.cut
    check_kept(asks["messages"], fitted)


def test_what_does_not_fit_beside_the_users_is_an_error() -> None:
    messages = [message for turn in TALKS["digests"] for message in turn] + [says("And now?")]
    with pytest.raises(BudgetExceeded):
        fit_request(
            {"model": "gpt-4o", "messages": messages}, budget=Budget(window=200, reserve=0), policy=KEPT
        )


def test_one_digest_stands_for_the_replies_between_messages_that_stay() -> None:
    """A digest for each reply would take more than `[trimmed]`, with which all of them fit."""
    budget = Budget(window=8_000, reserve=1_600, trigger=0.8)
    messages: list[Json] = []
    ledger = None
    for turn in range(80):
        messages.append(says(f"Question {turn}: " + f"please look at part {turn} carefully. " * 6))
        fitted = fit_request(
            {"model": "gpt-4o", "messages": messages},
            policy=Policy(users="kept", budget=budget),
            ledger=ledger,
        )
        ledger = fitted.ledger.dump()
        check_kept(messages, fitted)
        messages.append({"role": "assistant", "content": f"Answer {turn}. " + "as I said before. " * 24})
    digests = [message for message in fitted.request["messages"] if "<digest" in str(message["content"])]
    assert 0 < len(digests) < 10
    assert fitted.envelope.tokens <= 6_400


def test_what_was_lowered_before_comes_back() -> None:
    """The policy holds from the next request on, at a recorded cut."""
    budget = Budget(window=3_000, reserve=0)
    messages = [message for turn in TALKS["digests"] for message in turn] + [says("And now?")]
    request = {"model": "gpt-4o", "messages": messages}
    before = fit_request(request, budget=budget, policy=Policy(counter=BYTES4))
    after = fit_request(request, budget=6_000, policy=KEPT, ledger=before.ledger)
    check_kept(messages, after)
    assert len(after.ledger.cuts) == 2


def test_a_small_request_leaves_as_it_came() -> None:
    request = {"model": "gpt-4o", "messages": [*TALKS["pictures"][0], says("And now?")]}
    assert fit_request(request, policy=KEPT).request is request


TURN = st.one_of(
    st.builds(replies, st.integers(0, 300)),
    st.builds(lambda n: [*reads(n), *replies(n)], st.integers(1, 300)),
    st.builds(lambda n: [*reads(n), *reads(n + 1)], st.integers(1, 300)),
)
WORDS = st.one_of(
    st.sampled_from(["Go on.", "Never use tabs.", "No, use port 9.", "Look:\n" + "a long line\n" * 150]),
    st.builds(lambda n: "never say this " * n, st.integers(1, 120)),
    st.just([{"type": "text", "text": "See"}, PICTURE]),
)
POLICIES = st.builds(
    Policy,
    users=st.just("kept"),
    counter=st.just(BYTES4),
    history=st.sampled_from([None, None, LastN(3), LastN(2, slack=0), LastN(1, digest=None)]),
    prefer=st.sampled_from([None, "memory", "cost"]),
    remind=st.sampled_from(["auto", "off"]),
    recall=st.sampled_from(["handles", "off", "tool"]),
)


@given(st.lists(st.tuples(WORDS, TURN), min_size=1, max_size=14), st.integers(200, 9_000), POLICIES)
def test_users_are_kept_or_it_is_an_error(
    turns: list[tuple[Any, list[Json]]], window: int, policy: Policy
) -> None:
    messages: list[Json] = []
    ledger: Any = None
    for words, turn in turns:
        messages.append(says(words))
        request = {"model": "gpt-4o", "messages": list(messages)}
        try:
            fitted = fit_request(
                request, budget=Budget(window=window, reserve=0), policy=policy, ledger=ledger
            )
        except BudgetExceeded:
            return
        check_kept(messages, fitted)
        ledger = json.loads(json.dumps(fitted.ledger.dump()))
        messages += turn
