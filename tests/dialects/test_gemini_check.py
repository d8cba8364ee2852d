from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from lamina.dialects.gemini import DIALECT
from lamina.dialects.gemini.check import RULES
from tests.dialects.gemini_requests import Json, answers, arguments, asks, body, model, user

VALID = body(
    user("Read it.", {"inlineData": {"mimeType": "image/png", "data": "aGk="}}),
    model("I look.", asks(id_="c1"), asks("bash", id_="c2", signed=False, command="ls")),
    user(answers("bash", id_="c2"), answers(id_="c1")),
    model(asks("now")),
    user(answers("now", {"hour": 12})),
    systemInstruction={"parts": [{"text": "Be brief."}]},
    tools=[{"functionDeclarations": [{"name": "read_file"}, {"name": "now", "parameters": {}}]}],
)

Change = Callable[[Json], Any]


def parts(request: Json, at: int) -> list[Any]:
    content_parts: list[Any] = request["contents"][at]["parts"]
    return content_parts


def twice(request: Json) -> None:
    """The same call, with the same id, once more."""
    parts(request, 1).append(asks(id_="c1"))
    parts(request, 2).append(answers(id_="c1"))


BREAKS: dict[str, list[Change]] = {
    "contents_are_given": [
        lambda r: r.update(contents=[]),
        lambda r: r.pop("contents"),
        lambda r: r["contents"].append({"role": "user"}),
        lambda r: r["contents"].append({"role": "user", "parts": []}),
        lambda r: r["contents"].append({"role": "user", "parts": "hello"}),
    ],
    "roles_are_known": [
        lambda r: r["contents"].insert(0, {"role": "system", "parts": [{"text": "x"}]}),
        lambda r: r["contents"].append({"role": ["user"], "parts": [{"text": "x"}]}),
    ],
    "parts_say_one_thing": [
        lambda r: parts(r, 0).append({}),
        lambda r: parts(r, 0).append({"thought": True}),
        lambda r: parts(r, 0).append({"text": ""}),
        lambda r: parts(r, 0).append({"text": 7}),
        lambda r: parts(r, 0).append({"text": "x", "file_data": {"file_uri": "gs://a/b"}}),
        lambda r: parts(r, 0).append(7),
    ],
    "parts_stand_on_their_side": [
        lambda r: parts(r, 0).append(asks()),
        lambda r: parts(r, 3).append(answers()),
    ],
    "calls_follow_the_user": [
        lambda r: r["contents"].insert(1, model("Hm.")),
        lambda r: r["contents"].pop(0),
    ],
    "calls_are_answered": [
        lambda r: parts(r, 2).pop(),
        lambda r: parts(r, 2).append(answers()),
        lambda r: parts(r, 1).append(asks()),
        lambda r: r["contents"].extend((model(asks()), user())),
    ],
    "results_have_calls": [
        lambda r: r["contents"].append(user(answers())),
        lambda r: r["contents"].insert(0, user(answers())),
    ],
    "results_match_their_calls": [
        lambda r: parts(r, 2)[0]["functionResponse"].update(id="c3"),
        lambda r: parts(r, 2)[0]["functionResponse"].update(name="read_file"),
        lambda r: parts(r, 2)[0]["functionResponse"].pop("id"),
        lambda r: parts(r, 4)[0]["functionResponse"].update(id="c3"),
    ],
    "ids_are_unique": [
        twice,
    ],
    "calls_are_signed": [
        lambda r: parts(r, 1)[1].pop("thoughtSignature"),
        lambda r: parts(r, 3)[0].pop("thoughtSignature"),
        lambda r: parts(r, 3)[0].pop("thoughtSignature") and r.update(model="models/gemini-4-argon"),
    ],
    "ends_with_the_user": [
        lambda r: r["contents"].append(model()),
    ],
    "values_are_objects": [
        lambda r: parts(r, 1)[1]["functionCall"].update(args="path"),
        lambda r: parts(r, 2)[0]["functionResponse"].pop("response"),
        lambda r: parts(r, 2)[0]["functionResponse"].update(response="ok"),
    ],
    "media_are_whole": [
        lambda r: parts(r, 0)[1]["inlineData"].pop("mimeType"),
        lambda r: parts(r, 0)[1]["inlineData"].update(data=""),
        lambda r: parts(r, 0).append({"fileData": {"mimeType": "image/png"}}),
    ],
    "names_fit_the_pattern": [
        lambda r: r["tools"][0]["functionDeclarations"][0].update(name="1st"),
        lambda r: r["tools"][0]["functionDeclarations"][0].pop("name"),
        lambda r: r["tools"][0]["functionDeclarations"][0].update(name="n" * 129),
    ],
    "functions_are_declared_once": [
        lambda r: r["tools"].append({"function_declarations": [{"name": "now"}]}),
        lambda r: r["tools"][0]["functionDeclarations"][1].update(parametersJsonSchema={}),
    ],
    "system_text_is_text": [
        lambda r: r["systemInstruction"]["parts"].append({"fileData": {"fileUri": "gs://a/b"}}),
        lambda r: r["systemInstruction"]["parts"].append(7),
    ],
    "cached_content_stands_alone": [
        lambda r: r.pop("tools") and r.update(cachedContent="cachedContents/1"),
        lambda r: r.pop("systemInstruction") and r.update(cached_content="cachedContents/1"),
    ],
}  # fmt: skip


def test_a_valid_request_breaks_no_rule() -> None:
    assert DIALECT.wire.check(VALID) == []


@pytest.mark.parametrize(("rule", "change"), [(rule, change) for rule in RULES for change in BREAKS[rule]])
def test_each_rule_is_broken_alone(rule: str, change: Change) -> None:
    broken = copy.deepcopy(VALID)
    change(broken)
    assert {violation.rule for violation in DIALECT.wire.check(broken)} == {rule}


@pytest.mark.parametrize(
    ("rule", "change"), [(rule, change) for rule in RULES for change in BREAKS[rule][:1]]
)
def test_arguments_of_the_sdk_are_held_to_the_same_rules(rule: str, change: Change) -> None:
    broken = copy.deepcopy(VALID)
    change(broken)
    config = {
        name: value for name, value in broken.items() if name not in ("contents", "model", "generationConfig")
    }
    contents = {"contents": broken["contents"]} if "contents" in broken else {}
    assert {v.rule for v in DIALECT.wire.check({"model": broken["model"], **contents, "config": config})} == {
        rule
    }


def test_older_models_want_no_signatures() -> None:
    broken = copy.deepcopy(VALID) | {"model": "gemini-2.5-flash"}
    del broken["contents"][3]["parts"][0]["thoughtSignature"]
    assert DIALECT.wire.check(broken) == []
    assert DIALECT.wire.check(broken | {"model": "gemini-3-pro-image"}) == []
    assert DIALECT.wire.check(broken | {"model": "gemini-3.8-flash"})


def test_a_violation_says_where() -> None:
    broken = arguments(
        *copy.deepcopy(VALID["contents"]), tools=[{"function_declarations": [{"name": "a b"}]}]
    )
    broken["contents"][1]["parts"][2]["functionCall"]["args"] = 1
    assert [v.place for v in DIALECT.wire.check(broken)] == [
        "contents[1].parts[2].functionCall.args",
        "config.tools[0].function_declarations[0].name",
    ]


def test_each_of_several_equal_results_without_a_call_is_reported() -> None:
    calls: list[dict[str, Any]] = [{"functionCall": {"name": name, "args": {}}} for name in ("now", "today")]
    results = [{"functionResponse": {"name": "later", "response": {}}}] * 2
    broken = body(user(), {"role": "model", "parts": calls}, {"role": "user", "parts": results})
    violations = DIALECT.wire.check(broken | {"model": "gemini-2.5-flash"})
    assert [(v.rule, v.place) for v in violations] == [
        ("results_match_their_calls", "contents[2].parts[0].functionResponse"),
        ("results_match_their_calls", "contents[2].parts[1].functionResponse"),
    ]


@pytest.mark.parametrize(
    "request_",
    [{"contents": "Hi"}, body(user()), arguments(user()), {"model": "gemini-3-pro", "contents": [user()]}],
)
def test_requests_of_this_api_are_recognised(request_: Json) -> None:
    assert DIALECT.recognises(request_)


@pytest.mark.parametrize(
    "request_",
    [
        {"messages": [{"role": "user", "content": "Hi"}]},
        {"messages": [], "contents": []},
        {"input": "Hi"},
        {"model": "gemini-3-pro"},
        {},
    ],
)
def test_requests_of_others_are_not(request_: Json) -> None:
    assert not DIALECT.recognises(request_)


def test_nothing_is_bound_to_the_past() -> None:
    assert DIALECT.server is None
