from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from lamina import BadInput, InvalidRequest, RequestHead, Role, build, fit_request, segments
from lamina.core import Document, Image, Raw, Text, Thinking, ToolCall, ToolResult
from lamina.dialects.gemini import DIALECT
from lamina.dialects.gemini.wire import FOREIGN_SIGNATURE
from lamina.dialects.memos import ParseMemo
from tests.dialects.broken import Change
from tests.dialects.gemini_requests import (
    BREAKS,
    OPTIONS,
    PIXEL,
    SIGNED,
    VALID,
    Json,
    answers,
    asks,
    body,
    fitted,
    model,
    sent,
    user,
)  # fmt: skip

EVERYTHING = body(
    user(
        "What is this?",
        {"inlineData": {"mimeType": "image/png", "data": PIXEL}, "mediaResolution": {"level": "LOW"}},
        {"inlineData": {"mimeType": "application/pdf", "data": "JVBE", "displayName": "a.pdf"}},
        {"fileData": {"mimeType": "image/jpeg", "fileUri": "https://example.org/a.jpg"}},
        {"fileData": {"mimeType": "video/mp4", "fileUri": "gs://bucket/film.mp4"}},
        " ",
        {"hologram": {"depth": 3}},
    ),
    model({"text": "Let me look.", "thought": True}, {"text": "A cat.", "thoughtSignature": SIGNED}),
    user(" "),
    model(
        {"executableCode": {"language": "PYTHON", "code": "print(1)"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        "One.",
        {"text": "", "thoughtSignature": SIGNED},
    ),
    user("Search it."),
    model(
        {"toolCall": {"id": "t1", "toolType": "GOOGLE_SEARCH", "args": {"q": "cat"}}},
        {"toolResponse": {"id": "t1", "toolType": "GOOGLE_SEARCH", "response": {"hits": 3}}},
        "Found.",
    ),
    model("And more."),
    user("Read both."),
    model("I read.", asks(id_="c1"), asks("bash", id_="c2", signed=False, command="ls")),
    user("also:", answers("bash", {"error": "no such file"}, id_="c2"), answers(id_="c1")),
    model(asks("now", signed=False), asks("now", signed=False)),
    {"parts": [answers("now", {"hour": 12, "minute": 1}), answers("now", {"result": "noon"})]},
    model("Done."),
    user("Thanks.", "What next?"),
    systemInstruction={"role": "system", "parts": [{"text": "Be brief."}, {"text": "Be kind."}]},
    tools=[
        {"functionDeclarations": [{"name": "read_file", "parameters": {"type": "OBJECT"}}]},
        {"codeExecution": {}},
    ],
    safetySettings=[{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}],
    somethingNew={"unknown": ["to", "us"]},
)


def test_a_request_that_nothing_is_done_to_comes_back_as_the_same_objects() -> None:
    assert DIALECT.wire.check(EVERYTHING) == []
    rendered_request = DIALECT.wire.render(fitted(EVERYTHING))
    assert rendered_request == EVERYTHING
    assert list(rendered_request)[1:] == list(EVERYTHING)[1:]
    for before, after in zip(EVERYTHING["contents"], rendered_request["contents"], strict=True):
        assert before is after
    assert rendered_request["systemInstruction"] is EVERYTHING["systemInstruction"]
    assert rendered_request["tools"][0] is EVERYTHING["tools"][0]
    assert rendered_request["somethingNew"] is EVERYTHING["somethingNew"]


def test_pieces_are_typed() -> None:
    log = DIALECT.wire.parse(EVERYTHING).log
    parts = [part for segment in log for part in segment.parts]
    assert Image(data=PIXEL, media_type="image/png") in parts
    assert Document(data="JVBE", media_type="application/pdf", name="a.pdf") in parts
    assert Image(url="https://example.org/a.jpg", media_type="image/jpeg") in parts
    assert Document(url="gs://bucket/film.mp4", media_type="video/mp4", name="film.mp4") in parts
    assert Raw(dialect="gemini", data={"hologram": {"depth": 3}}) in parts
    assert Thinking(text="Let me look.") in parts
    assert Thinking(text="", signature=SIGNED) in parts
    assert ToolCall(id="c2", name="bash", arguments='{"command":"ls"}') in parts
    assert ToolResult(id="c2", name="bash", content=(Text("no such file"),), error=True) in parts
    assert sum(len(segment.parts) == 2 for segment in log) == 2  # a tool of the API with what it gave


def test_roles_kinds_and_joins() -> None:
    log = DIALECT.wire.parse(EVERYTHING).log
    assert [s.kind for s in log[:3]] == ["system", "system", "user"]
    assert {s.role for s in log if s.kind == "thinking"} == {Role.ASSISTANT}
    assert len([s for s in log if not s.joins]) == len(EVERYTHING["contents"]) + 1
    assert {s.origin for s in log} == {"gemini"}


def test_results_without_ids_answer_calls_by_name_and_position() -> None:
    calls = model(asks("now"), asks(signed=False), asks("now", signed=False))
    results = user(answers("now", "1"), answers("now", "2"), answers("read_file", "3"))
    log = DIALECT.wire.parse(body(user(), calls, results)).log
    ids = {s.parts[0].id: s.parts[0].name for s in log if isinstance(s.parts[0], ToolCall)}
    logged_results = [s.parts[0] for s in log if isinstance(s.parts[0], ToolResult)]
    assert len(ids) == 3
    assert [ids[result.id] for result in logged_results] == ["now", "now", "read_file"]
    assert [s.attrs for s in log if s.kind == "tool_result"] == [{"path": "src/a.py"}] * 3


def test_the_id_of_a_call_without_one_does_not_depend_on_its_place() -> None:
    one = DIALECT.wire.parse(body(user(), model(asks()), user(answers())))
    two = DIALECT.wire.parse(body(user(), model(), user(), model(asks()), user(answers())))
    assert one.log[1].parts == two.log[3].parts


def test_a_lowered_content_is_a_copy_in_which_the_rest_is_the_same() -> None:
    thought = {"text": "I write.", "thoughtSignature": SIGNED}
    old = model(thought, asks("write", id_="c1", path="a", text="long " * 900))
    contents = sent(
        body(user(), old, user(answers("write", "ok", id_="c1")), model(), user(), model(), user()),
        window=420, keep_last=0,
    )  # fmt: skip
    changed = contents[1]
    assert changed is not old
    assert changed["parts"][0] is thought
    assert changed["parts"][1]["thoughtSignature"] == SIGNED
    assert "trimmed" in changed["parts"][1]["functionCall"]["args"]["text"]
    assert changed["parts"][1]["functionCall"]["id"] == "c1"
    assert len(old["parts"][1]["functionCall"]["args"]["text"]) > 4000


def test_a_lowered_result_keeps_its_name_its_field_and_gets_no_id() -> None:
    old = user(answers("bash", {"result": "line\n" * 2000}))
    contents = sent(body(user(), model(asks("bash")), old, model(), user()), window=600, keep_last=0)
    response = contents[2]["parts"][0]["functionResponse"]
    assert response.keys() == {"name", "response"}
    assert response["response"]["result"] != old["parts"][0]["functionResponse"]["response"]["result"]
    assert response["name"] == "bash"


def test_a_lowered_picture_leaves_its_neighbours() -> None:
    picture, text_part = {"inlineData": {"mimeType": "image/png", "data": PIXEL}}, {"text": "Look."}
    contents = sent(body(user(text_part, picture), model(), user(), model(), user()), window=600, keep_last=0)
    assert contents[0]["parts"][0] is text_part
    assert contents[0]["parts"][1].keys() == {"text"}


def test_a_lowered_result_no_longer_shows_its_media() -> None:
    shot = answers("shot", "taken " * 900)
    shot["functionResponse"]["parts"] = [{"inlineData": {"mimeType": "image/png", "data": PIXEL}}]
    original_request = body(user(), model(asks("shot")), user(shot), model(), user(), model(), user())
    assert [type(p) for p in DIALECT.wire.parse(original_request).log[2].parts[0].content] == [Text, Image]  # type: ignore[union-attr]
    response = sent(original_request, window=500, keep_last=0)[2]["parts"][0]["functionResponse"]
    assert response.keys() == {"name", "response"}


def test_text_that_is_shortened_loses_its_signature() -> None:
    old = model({"text": "reply " * 3000, "thoughtSignature": SIGNED, "partMetadata": {"a": 1}})
    shortened_part = sent(body(user(), old, user(), model(), user()), window=800, keep_last=0)[1]["parts"][0]
    assert shortened_part.keys() == {"text", "partMetadata"}
    assert "recall" in shortened_part["text"]


@pytest.mark.parametrize(
    "contents",
    [
        [model(asks()), user(answers())],
        [user(), model(asks())],
        [user(), model(asks(id_="c1"), asks(id_="c2")), user(answers(id_="c2"))],
        [user(), model(asks(id_="c1")), user(), model(), user(answers(id_="c1"))],
        [user(), model(asks(id_="c1"), asks(id_="c1")), user(answers(id_="c1"), answers(id_="c1"))],
        [user(), user(answers("nobody"))],
        [user(), model(asks()), user(answers(), answers())],
        [user(), model("I look."), model(asks()), user(answers())],
        [user(), model(asks(id_="c1")), model(asks(id_="c2")), user(answers(id_="c1"), answers(id_="c2"))],
        [user(), model(asks(), asks(signed=False)), user(answers()), user(answers())],
        [user(), model(asks("functions read:0")), user(answers("functions read:0"))],
        [user(), model(asks("a")), user(answers("b"))],
        [user(), model(asks(id_="c1")), user(answers())],
        [user(), model(asks()), user(answers(id_="c1"))],
        [user(), model(asks()), user({"functionResponse": {"name": "read_file"}})],
        [user(), model(asks()), {"role": "function", "parts": [answers()]}],
        [user(), model(asks()), {"role": "tool", "parts": [answers()]}],
        [user(), model(asks(signed=False)), user(answers()), model(asks(signed=False)), user(answers())],
        [user("", "Go."), model(), user()],
        [user(), {"role": "model", "parts": []}, user()],
    ],
)
def test_what_the_api_would_refuse_is_mended(contents: list[Json]) -> None:
    assert DIALECT.wire.check(body(*contents))
    sent(body(*contents))
    sent({"model": "gemini-3-pro", "contents": contents})


@pytest.mark.parametrize("contents", [[user(), model()], [user(), model(), user("")]])
def test_nothing_is_asked_in_the_place_of_the_user(contents: list[Json]) -> None:
    with pytest.raises(InvalidRequest, match="ends_with_user") as refused:
        fit_request({"model": "gemini-3-pro", "contents": contents})
    assert refused.value.violations[0].place == f"contents[{len(contents) - 1}]"


def test_no_result_is_lost_where_contents_are_put_together() -> None:
    contents = [
        user(),
        model("I look."),
        model(asks("a")),
        model(asks("b")),
        user(answers("b", "B")),
        user(answers("a", "A")),
    ]
    sent_contents = sent(body(*contents))
    assert [content["role"] for content in sent_contents] == ["user", "model", "user"]
    responses = [part["functionResponse"]["response"] for part in sent_contents[2]["parts"]]
    assert responses == [{"output": "B"}, {"output": "A"}]


def test_calls_of_others_carry_the_signature_that_is_documented_for_them() -> None:
    log = [
        segments.user("Go."),
        segments.call("a", {}, id="c1"),
        segments.call("b", {}, id="c2"),
        segments.result("1", id="c1"),
        segments.result("2", id="c2", joins=True),
        segments.assistant("Done."),
        segments.user("And?"),
    ]
    new = DIALECT.wire.render(
        build(log, head=RequestHead(parameters={"model": "gemini-3-pro"}), options=OPTIONS)
    )
    parts = new["contents"][1]["parts"]
    assert [part.get("thought_signature") for part in parts] == [FOREIGN_SIGNATURE, None]
    old = DIALECT.wire.render(
        build(log, head=RequestHead(parameters={"model": "gemini-2.5-pro"}), options=OPTIONS)
    )
    assert FOREIGN_SIGNATURE not in json.dumps(old)


def test_unsigned_calls_of_earlier_turns_stay_as_they_came() -> None:
    original_request = body(user(), model(asks(signed=False)), user(answers()), model(), user())
    assert DIALECT.wire.check(original_request) == []
    assert sent(original_request)[1] is original_request["contents"][1]


def test_later_instructions_are_said_by_the_user() -> None:
    log = [
        segments.system("Be brief."),
        segments.user("Hi."),
        segments.assistant("Hi."),
        segments.system("Be loud."),
    ]
    rendered_request = DIALECT.wire.render(build([*log, segments.user("Go.")], options=OPTIONS))
    assert "Be loud." not in json.dumps(rendered_request["config"])
    assert [content["role"] for content in rendered_request["contents"]] == ["user", "model", "user", "user"]


def test_names_that_the_request_defines_are_left_alone() -> None:
    tools = [{"functionDeclarations": [{"name": "read it"}]}]
    original_request = body(user(), model(asks("read it")), user(answers("read it")), tools=tools)
    assert DIALECT.wire.render(fitted(original_request))["contents"][1] == original_request["contents"][1]


def test_a_request_of_which_nothing_can_be_sent_is_refused() -> None:
    with pytest.raises(BadInput, match="nothing is left to send"):
        DIALECT.wire.render(fitted(body(user(""))))


def test_equal_calls_without_ids_get_the_same_ids_with_and_without_a_memo() -> None:
    """The second call is equal to the first, in a content that goes on with the first one's."""
    call, memo = asks("search", path="a"), ParseMemo()
    DIALECT.wire.parse(body(user(), model(call)), memo=memo)
    grown = body(user(), model(call), model("again", call), user(answers("search"), answers("search")))
    assert DIALECT.wire.parse(grown, memo=memo) == DIALECT.wire.parse(grown)


def test_a_result_without_its_call_takes_none_under_a_memo_either() -> None:
    """Its name is that of a call with another id, which the next result of this name answers."""
    memo = ParseMemo()
    lost = body(user(), model(asks("read", id_="a"), asks("read")), user(answers("read", id_="lost")))
    DIALECT.wire.parse(lost, memo=memo)
    grown = body(*lost["contents"], user(answers("read")))
    assert DIALECT.wire.parse(grown, memo=memo) == DIALECT.wire.parse(grown)


def test_loose_parts_are_remembered_too() -> None:
    memo = ParseMemo()
    one = DIALECT.wire.parse({"contents": ["Hi", "there"]}, memo=memo)
    two = DIALECT.wire.parse(
        {"contents": ["Hi", "there", {"role": "model", "parts": [{"text": "Hi."}]}]}, memo=memo
    )
    assert all(a is b for a, b in zip(one.log, two.log, strict=False))


def test_many_calls_without_ids_are_paired_in_linear_time() -> None:
    count = 4_000
    calls = model(*(asks(f"f{i % 7}", signed=i == 0, n=i % 3) for i in range(count)))
    original_request = body(user(), calls, user(*(answers(f"f{i % 7}", "x") for i in range(count))))
    assert DIALECT.wire.check(original_request) == []
    assert len(DIALECT.wire.parse(original_request).log) == 2 * count + 1


@pytest.mark.parametrize(
    ("rule", "change"), [(rule, changes[0]) for rule, changes in BREAKS.items() if " at " not in rule]
)
def test_arguments_of_the_sdk_are_held_to_the_same_rules(rule: str, change: Change) -> None:
    broken = copy.deepcopy(VALID)
    change(broken)
    config = {
        name: value for name, value in broken.items() if name not in ("contents", "model", "generationConfig")
    }
    contents = {"contents": broken["contents"]} if "contents" in broken else {}
    request = {"model": broken["model"], **contents, "config": config}
    beside = {"calls_and_results_pair"} if rule == "ids_are_unique" else set()
    assert {v.rule for v in DIALECT.wire.check(request)} - beside == {rule}


def test_older_models_want_no_signatures() -> None:
    broken = copy.deepcopy(VALID) | {"model": "gemini-2.5-flash"}
    del broken["contents"][3]["parts"][0]["thoughtSignature"]
    assert DIALECT.wire.check(broken) == []
    assert DIALECT.wire.check(broken | {"model": "gemini-3-pro-image"}) == []
    assert DIALECT.wire.check(broken | {"model": "gemini-3.8-flash"})


def test_each_of_several_equal_results_without_a_call_is_reported() -> None:
    calls: list[dict[str, Any]] = [{"functionCall": {"name": name, "args": {}}} for name in ("now", "today")]
    results = [{"functionResponse": {"name": "later", "response": {}}}] * 2
    broken = body(user(), {"role": "model", "parts": calls}, {"role": "user", "parts": results})
    violations = DIALECT.wire.check(broken | {"model": "gemini-2.5-flash"})
    assert {violation.rule for violation in violations} == {"calls_and_results_pair"}
    assert [violation.place for violation in violations] == [
        "contents[1].parts[0].functionCall",
        "contents[1].parts[1].functionCall",
        "contents[2].parts[0].functionResponse",
        "contents[2].parts[1].functionResponse",
    ]
