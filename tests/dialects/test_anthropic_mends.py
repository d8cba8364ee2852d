"""What is mended of a Messages request before it leaves, one case each, and what cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from lamina import Budget, Fitted, InvalidRequest, Ledger, Policy, Role, fit_request
from lamina.dialects.anthropic import DIALECT
from lamina.dialects.anthropic.markers import find_all_markers, remove_refused_markers
from lamina.dialects.sending import MOVED

Json = dict[str, Any]

ROOM = Budget(window=8_000)

SEARCHED: list[Json] = [
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "lamp"}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
]
"""What a tool on the API's side was asked, and what it found."""


def user(content: Any = "q") -> Json:
    return {"role": "user", "content": content}


def spoke(content: Any = "a") -> Json:
    return {"role": "assistant", "content": content}


def system(content: Any = "be brief") -> Json:
    return {"role": "system", "content": content}


def used(*ids: str, name: str = "read") -> Json:
    return spoke([{"type": "tool_use", "id": id_, "name": name, "input": {}} for id_ in ids])


def gave(*ids: str) -> Json:
    return user([{"type": "tool_result", "tool_use_id": id_, "content": "x"} for id_ in ids])


def request(*messages: Json, **fields: Any) -> Json:
    return {"model": "claude-opus-4-8", "max_tokens": 100, "messages": list(messages), **fields}


def fitted(body: Json, ledger: Ledger | None = None, budget: Budget = ROOM, **options: Any) -> Fitted:
    result = fit_request(body, dialect="anthropic", budget=budget, ledger=ledger, **options)
    assert DIALECT.wire.check(result.request) == []
    return result


def sent(*messages: Json, **fields: Any) -> list[Json]:
    sent_messages: list[Json] = fitted(request(*messages, **fields)).request["messages"]
    return sent_messages


# calls and results


def test_parallel_results_in_a_message_each_are_joined() -> None:
    assert sent(user(), used("a", "b"), gave("a"), gave("b")) == [user(), used("a", "b"), gave("a", "b")]


def test_a_message_that_lost_one_block_and_gained_another_is_not_the_original() -> None:
    """An empty text is left out and the next message's call joins: as many blocks, but not the same ones."""
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    first, second = used("a", "b")["content"]
    first_message = spoke([thought, {"type": "text", "text": "\n"}, first])
    messages = sent(user(), first_message, spoke([second]), gave("a", "b"))
    assert messages[1]["content"] == [thought, first, second]


def test_words_that_join_a_message_which_lost_a_block_are_sent() -> None:
    """The result is doubled, the first beside an empty text: the later words must not be lost."""
    [answer] = gave("a")["content"]
    blank, words = ({"type": "text", "text": text} for text in ("\n", "and then?"))
    assert words in sent(user(), used("a"), user([answer, blank]), user([answer, words]))[-1]["content"]


def test_of_joined_messages_the_first_one_s_fields_win() -> None:
    first, second = gave("a") | {"label": "one"}, gave("b") | {"label": "two", "more": 1}
    joined = sent(user(), used("a", "b"), first, second)[-1]
    assert joined == gave("a", "b") | {"label": "one", "more": 1}


def test_a_call_whose_id_is_mended_keeps_its_input_as_the_object_that_came() -> None:
    called = used("a"), used("a")
    called[1]["content"][0]["input"] = {"path": "b.py", "lines": 1.0}
    sent_call = sent(user(), called[0], gave("a"), called[1], gave("a"))[3]["content"][0]
    assert sent_call["id"] != "a"
    assert sent_call["input"] is called[1]["content"][0]["input"]


def test_a_result_without_content_may_say_so_with_a_null() -> None:
    body = request(user(), used("a"), user([{"type": "tool_result", "tool_use_id": "a", "content": None}]))
    absent = request(user(), used("a"), user([{"type": "tool_result", "tool_use_id": "a"}]))
    assert fitted(body).request is body
    streams = [DIALECT.cache.stream(each) for each in (body, absent)]
    assert [block.data for block in streams[0].blocks] == [block.data for block in streams[1].blocks]


def test_words_between_a_call_and_its_result_stand_after_it() -> None:
    assert sent(user(), used("a"), user("wait"), gave("a")) == [user(), used("a"), gave("a"), user("wait")]


def test_a_name_that_the_api_refuses_is_mended_in_the_history_only() -> None:
    messages = sent(
        user(), used("a", name="srv.read"), gave("a"), tools=[{"name": "read", "input_schema": {}}]
    )
    assert messages[1]["content"][0]["name"] == "srv_read"
    with pytest.raises(InvalidRequest, match=r"tools\[0\]\.name \('srv\.read'\).*rename the tool"):
        fitted(request(user(), tools=[{"name": "srv.read", "input_schema": {}}]))


def test_thinking_without_its_signature_is_left_out_with_that_reason() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": ""}
    text = {"type": "text", "text": "a"}
    result = fitted(request(user(), spoke([thought, text]), user()))
    assert result.request["messages"][1] == spoke([text])
    left_out = [entry.why for entry in result.envelope.entries if not entry.parts]
    assert left_out == ["thinking without its signature, which the API refuses"]


# what is said of it


def test_what_was_mended_is_told_in_the_account() -> None:
    result = fitted(request(user(), used("a", "b"), gave("a"), gave("b")))
    assert result.envelope.notes == (
        "mended messages[1].content[1]: calls_and_results_pair",
        "mended messages[3].content[0]: calls_and_results_pair",
    )
    assert fitted(result.request).envelope.notes == ()


def test_many_mends_are_counted() -> None:
    blank = {"type": "text", "text": " "}
    result = fitted(request(*[user([blank] * 9), user()]))
    assert len(result.envelope.notes) == 6
    assert result.envelope.notes[-1] == "mended 4 more"


def test_a_blank_question_is_not_asked_in_other_words() -> None:
    with pytest.raises(InvalidRequest) as refused:
        fitted(request(user("q"), spoke("so it is"), user(" ")))
    error = refused.value
    assert [violation.rule for violation in error.violations] == ["ends_with_user"]
    assert str(error) == (
        "messages[2] (' '): it says nothing, and without it the request would end with what the model said "
        "(rule ends_with_user); add what the user asks, as the last message; "
        "left out or mended before: messages[2].content[0] (nothing_is_empty)"
    )


def test_places_are_those_of_the_caller_though_messages_before_them_were_left_out() -> None:
    with pytest.raises(InvalidRequest) as refused:
        fitted(request(user(""), user("q"), user(""), spoke("long words " * 9)))
    assert refused.value.violations[0].place == "messages[3]"
    assert refused.value.words == "long words long words long words long wo…"


def test_nothing_at_all_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="at least one message"):
        fitted(request(user("")))
    with pytest.raises(InvalidRequest, match="give max_tokens"):
        fit_request({"model": "claude-opus-4-8", "messages": [user()]})


# system messages


@pytest.mark.parametrize(
    ("messages", "roles"),
    [
        ([user(), spoke(), system(), user()], "user assistant user system"),
        ([user(), system(), user()], "user user system"),
        ([user(), spoke(), system(), spoke(), user()], "user assistant assistant user system"),
        ([user(), used("a"), system(), gave("a")], "user assistant user system"),
        ([user(), system("one"), system("two"), spoke(), user()], "user system assistant user"),
        ([system(), user()], "user"),
        (
            # Results that have to be joined, so that the request does not pass as it came.
            [user(), used("a", "b"), gave("a"), gave("b"), spoke(SEARCHED), system(), spoke(), user()],
            "user assistant user assistant system assistant user",
        ),
    ],
)
def test_a_system_message_waits_for_a_place_that_the_api_takes(messages: list[Json], roles: str) -> None:
    sent_messages = sent(*messages)
    assert [message["role"] for message in sent_messages] == roles.split()


def test_it_stays_there_for_good() -> None:
    messages = [user("q"), spoke(), system(), user("q2")]
    ledger = fitted(request(*messages)).ledger
    for more in (
        [spoke("a2"), user("q3")],
        [spoke("a3"), user([{"type": "text", "text": " "}, {"type": "text", "text": "q4"}])],
    ):
        messages += more
        result = fitted(request(*messages), ledger)
        assert result.request["messages"][:4] == [user("q"), spoke(), user("q2"), system()]
        assert result.ledger.cuts == ()
        ledger = result.ledger


def test_where_no_place_is_left_the_move_is_a_recorded_cut() -> None:
    """It was sent last, which is allowed; then the user goes on without an answer."""
    first = fitted(request(user("q"), system()))
    assert first.request["messages"] == [user("q"), system()]
    second = fitted(request(user("q"), system(), user("q2")), first.ledger)
    assert second.request["messages"] == [user("q"), user("q2"), system()]
    assert [cut.reason for cut in second.ledger.cuts] == [MOVED]
    assert second.envelope.cut == second.ledger.cuts[0]
    third = fitted(request(user("q"), system(), user("q2"), spoke(), user("q3")), second.ledger)
    assert len(third.ledger.cuts) == 1


def test_a_system_message_after_which_nothing_is_asked_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="a system message must follow a user message"):
        fitted(request(user(), spoke(), system()))


def test_a_model_without_system_messages_is_told_in_the_user_s_voice() -> None:
    result = fitted(request(user("q"), system(), spoke(), user("q2"), model="claude-sonnet-4-5"))
    assert [message["role"] for message in result.request["messages"]] == [
        "user",
        "user",
        "assistant",
        "user",
    ]
    assert result.log[1].role is Role.SYSTEM, "it is not what the user asked, and is never lowered"


def test_instructions_after_a_question_are_not_the_question() -> None:
    """The question is sent in full; what the model was told after it does not take its place."""
    step = [spoke("a " * 900), user("q2 " * 900), spoke("b " * 900)]
    messages = [user("old " * 900), *step, user("the question"), system()]
    result = fitted(
        request(*messages, model="claude-sonnet-4-5"),
        budget=Budget(window=2_000, reserve=0),
        policy=Policy(breakpoints="keep"),
    )
    assert result.ledger.folds
    assert [message["content"] for message in result.request["messages"][-2:]] == ["the question", "be brief"]


# cache markers


def text(lifetime: str) -> Json:
    ttl = {"ttl": lifetime} if lifetime else {}
    return {"type": "text", "text": "t", "cache_control": {"type": "ephemeral", **ttl}}


@pytest.mark.parametrize(
    ("tools", "system_", "message_marks", "left"),
    [
        ("", "", "5m 5m 5m 5m 5m", "messages1 messages2 messages3 messages4"),
        ("5m", "5m", "5m 5m 5m", "tools0 system0 messages1 messages2"),
        ("5m 5m 5m 5m 5m", "", "5m", "tools2 tools3 tools4 messages0"),
        ("5m 5m", "5m 5m", "5m", "tools1 system0 system1 messages0"),
        ("1h", "", "5m 1h", "tools0 messages0 messages1:5m"),
        ("", "", "5m 1h 1h", "messages1 messages2"),
        ("5m", "", "1h 1h", "tools0 messages0:5m messages1:5m"),
        ("1h", "1h", "1h 5m", "tools0 system0 messages0 messages1"),
    ],
)
def test_the_fewest_markers_are_taken_off_or_made_shorter(
    tools: str, system_: str, message_marks: str, left: str
) -> None:
    body = request(
        user([text(lifetime) for lifetime in message_marks.split()]),
        tools=[{"name": "t", **text(lifetime)} for lifetime in tools.split()],
        system=[text(lifetime) for lifetime in system_.split()],
    )
    before = {placed.place: placed.lifetime for placed in find_all_markers(body)}
    markers = list(find_all_markers(remove_refused_markers(body, find_all_markers(body))))
    lifetimes = []
    for placed in markers:
        name = placed.place.replace("messages[0].content", "messages").replace("[", "").replace("]", "")
        lifetimes.append(name if placed.lifetime == before[placed.place] else f"{name}:{placed.lifetime}")
    assert " ".join(lifetimes) == left
    assert "1h" not in [p.lifetime for p in markers if before[p.place] == "5m"]


@pytest.mark.parametrize("lifetimes", [("1h", "5m"), ("5m", "1h"), ("", "1h")])
def test_of_the_markers_inside_a_result_the_last_one_says_how_long(lifetimes: tuple[str, str]) -> None:
    found = {"type": "tool_result", "tool_use_id": "a", "content": [text(each) for each in lifetimes]}
    stream = DIALECT.cache.stream(request(user(), used("a"), user([found])))
    assert stream.blocks[-1].marker == lifetimes[-1]


def test_markers_that_the_api_takes_stay_the_same_object() -> None:
    body = request(user([text("1h"), text("5m"), text("")]))
    assert remove_refused_markers(body, find_all_markers(body)) is body
    assert fitted(body).request is body


def test_a_marker_for_the_whole_request_counts_as_the_newest() -> None:
    body = request(user([text("5m")] * 4), cache_control={"type": "ephemeral"})
    sent_request = fitted(body).request
    assert [placed.place for placed in find_all_markers(sent_request)][-1] == "cache_control"
    assert len(list(find_all_markers(sent_request))) == 4


def test_a_marker_on_thinking_is_taken_off_and_the_thought_stays() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    marked = {**thought, "cache_control": {"type": "ephemeral"}}
    assert sent(user(), spoke([marked, {"type": "text", "text": "a"}]), user())[1]["content"][0] == thought
