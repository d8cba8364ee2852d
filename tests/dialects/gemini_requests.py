"""Requests of the generateContent API for tests: small builders, and whole conversations from a number."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

from lamina import Options
from lamina.core import Layout
from lamina.dialects.gemini import DIALECT
from tests.dialects.broken import Change, list_broken
from tests.dialects.sending import fit, send

Json = dict[str, Any]
OPTIONS = Options(repairs=DIALECT.wire.repairs, layout=Layout(context="logged"), carries=DIALECT.wire.carries)
PIXEL = "iVBORw0K" * 400
SIGNED = "c2lnbmVkIGJ5IHRoZSBtb2RlbA=="


def user(*parts: Any) -> Json:
    return {"role": "user", "parts": [text(part) for part in parts or ("Go on.",)]}


def model(*parts: Any) -> Json:
    return {"role": "model", "parts": [text(part) for part in parts or ("Yes.",)]}


def text(part: Any) -> Any:
    return {"text": part} if isinstance(part, str) else part


def asks(name: str = "read_file", /, *, id_: str = "", signed: bool = True, **args: Any) -> Json:
    call = {"name": name, "args": args or {"path": "src/a.py"}} | ({"id": id_} if id_ else {})
    return {"functionCall": call} | ({"thoughtSignature": SIGNED} if signed else {})


def answers(name: str = "read_file", /, output: Any = "x = 1\n" * 40, *, id_: str = "") -> Json:
    response = output if isinstance(output, dict) else {"output": output}
    return {"functionResponse": {"name": name, "response": response} | ({"id": id_} if id_ else {})}


def body(*contents: Any, **fields: Any) -> Json:
    """A REST body."""
    return {"model": "gemini-3-pro", "contents": list(contents), "generationConfig": {}, **fields}


def arguments(*contents: Any, **config: Any) -> Json:
    """Keyword arguments of the SDK."""
    return {"model": "gemini-3-pro", "contents": list(contents), "config": config}


fitted = partial(fit, "gemini")


def sent(original_request: Json, **dials: Any) -> list[Any]:
    return list(send("gemini", original_request, **dials)["contents"])


def conversation(seed: int) -> Json:
    """A valid request of a few turns: text, pictures, thoughts, calls in parallel with and without ids."""
    dice = Random(seed)  # noqa: S311 - a seeded generator is the point
    contents: list[Json] = []
    for turn in range(dice.randint(1, 6)):
        words = f"{turn} " + "word " * dice.choice((1, 5, 200))
        picture = {"inlineData": {"mimeType": "image/png", "data": PIXEL}}
        contents.append(dice.choice((user(words), user(words, picture), user(picture, words))))
        for step in range(dice.choice((0, 1, 1, 3))):
            contents += _step(dice, f"{turn}_{step}")
        thought = {"text": "hm " * 50, "thought": True}
        last = {"text": "reply " * dice.choice((1, 100)), "thoughtSignature": SIGNED}
        contents.append(dice.choice((model(last), model(thought, last), model("Yes."))))
    contents.append(user("And now?"))
    if dice.random() < 0.5:
        return body(*contents, systemInstruction={"parts": [{"text": "Be brief."}, {"text": "Be kind."}]})
    return arguments(*contents, system_instruction="Be brief.", max_output_tokens=500)


def _step(dice: Random, name: str) -> list[Json]:
    ids = [f"c{name}_{i}" for i in range(dice.choice((1, 1, 2, 3)))]
    tool, named = dice.choice(("read_file", "bash", "fs.write")), dice.random() < 0.5
    args = {"path": "a.py", "text": "x " * dice.choice((1, 500))}
    calls = [asks(tool, id_=id_ if named else "", signed=i == 0, **args) for i, id_ in enumerate(ids)]
    before: list[Any] = dice.choice(([], ["I look."], [{"text": "hm " * 100, "thought": True}]))
    if named:
        dice.shuffle(ids)
    outputs = [f"{dice.random()} " * dice.choice((1, 20, 400)) for _ in ids]
    results = [answers(tool, out, id_=id_ if named else "") for id_, out in zip(ids, outputs, strict=True)]
    return [model(*before, *calls), user(*results)]


VALID = body(
    user("Read it.", {"inlineData": {"mimeType": "image/png", "data": "aGk="}}),
    model("I look.", asks(id_="c1"), asks("bash", id_="c2", signed=False, command="ls")),
    user(answers("bash", id_="c2"), answers(id_="c1")),
    model(asks("now")),
    user(answers("now", {"hour": 12})),
    systemInstruction={"parts": [{"text": "Be brief."}]},
    tools=[{"functionDeclarations": [{"name": "read_file"}, {"name": "now", "parameters": {}}]}],
)


def parts(request: Json, at: int) -> list[Any]:
    content_parts: list[Any] = request["contents"][at]["parts"]
    return content_parts


def twice(request: Json) -> None:
    """The same call, with the same id, once more."""
    parts(request, 1).append(asks(id_="c1"))
    parts(request, 2).append(answers(id_="c1"))


BREAKS: dict[str, list[Change]] = {
    "nothing_is_empty": [
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
    "functions_stand_on_their_side": [
        lambda r: parts(r, 0).append(asks()),
        lambda r: parts(r, 3).append(answers()),
    ],
    "calls_follow_the_user": [
        lambda r: r["contents"].insert(1, model("Hm.")),
        lambda r: r["contents"].pop(0),
    ],
    "calls_and_results_pair": [
        lambda r: parts(r, 2).pop(),
        lambda r: parts(r, 2).append(answers()),
        lambda r: parts(r, 1).append(asks()),
        lambda r: r["contents"].extend((model(asks()), user())),
        lambda r: r["contents"].append(user(answers())),
        lambda r: r["contents"].insert(0, user(answers())),
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
    "ends_with_user": [
        lambda r: r["contents"].append(model()),
    ],
    "fields_are_whole": [
        lambda r: parts(r, 1)[1]["functionCall"].update(args="path"),
        lambda r: parts(r, 2)[0]["functionResponse"].pop("response"),
        lambda r: parts(r, 2)[0]["functionResponse"].update(response="ok"),
    ],
    "fields_are_whole at contents[1].parts[2].functionCall.args": [
        lambda r: parts(r, 1)[2]["functionCall"].update(args=1),
    ],
    "media_are_whole": [
        lambda r: parts(r, 0)[1]["inlineData"].pop("mimeType"),
        lambda r: parts(r, 0)[1]["inlineData"].update(data=""),
        lambda r: parts(r, 0).append({"fileData": {"mimeType": "image/png"}}),
    ],
    "names_and_ids_fit": [
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


BROKEN = list_broken(VALID, BREAKS)
