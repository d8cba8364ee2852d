"""Requests of the Converse API for tests, and the service model of botocore, which says what is one."""

from __future__ import annotations

import json
import struct
from binascii import crc32
from functools import cache, partial
from random import Random
from typing import Any

import botocore.session
import msgspec
from botocore.serialize import create_serializer
from botocore.validate import ParamValidator

from lamina.core.hashing import canonical_json
from lamina.dialects.bedrock_converse import DIALECT, to_sdk_arguments
from tests.dialects.sending import fit

Json = dict[str, Any]
MODEL = "us.anthropic.claude-sonnet-4-5-v1:0"
POINT = {"cachePoint": {"type": "default"}}
PIXEL = "iVBORw0KGgo="
TOOL = {
    "toolSpec": {
        "name": "read_file",
        "description": "Reads a file.",
        "inputSchema": {"json": {"type": "object", "properties": {"path": {"type": "string"}}}},
    }
}


def request(*messages: Json, **fields: Any) -> Json:
    tools = {"toolConfig": {"tools": [TOOL]}}
    return {"modelId": MODEL, "messages": list(messages), **tools, **fields}


def user(*blocks: Any) -> Json:
    return {"role": "user", "content": list(blocks) or [{"text": "Go on."}]}


def says(*blocks: Any) -> Json:
    return {"role": "assistant", "content": list(blocks) or [{"text": "Yes."}]}


def called(id_: str, name: str = "read_file", **tool_input: Any) -> Json:
    return {"toolUse": {"toolUseId": id_, "name": name, "input": tool_input or {"path": "src/a.py"}}}


def answers(id_: str, *content: Json, **fields: Any) -> Json:
    blocks = list(content) or [{"text": "x = 1\n" * 40}]
    return {"toolResult": {"toolUseId": id_, "content": blocks, **fields}}


def picture() -> Json:
    return {"image": {"format": "png", "source": {"bytes": PIXEL}}}


def document(name: str = "rates") -> Json:
    return {"document": {"name": name, "format": "pdf", "source": {"bytes": PIXEL}}}


fitted = partial(fit, "bedrock_converse")


def sent(original_request: Json, *, window: int | None = None) -> Json:
    """The request that is sent. It breaks no rule, and botocore takes it as it is."""
    rendered_request = DIALECT.wire.render(fitted(original_request, window=window))
    assert DIALECT.wire.check(rendered_request) == []
    assert refusals(rendered_request) == ""
    return rendered_request


@cache
def service() -> Any:
    """The service model of bedrock-runtime."""
    return botocore.session.get_session().get_service_model("bedrock-runtime")


def refusals(body: Json) -> str:
    """What boto3 says about a request before it would send it, and "" if it would leave as it is.

    The serializer gives the body that leaves. Names that the service does not know are refused before that.
    """
    operation = service().operation_model("Converse")
    arguments = to_sdk_arguments(body)
    report = ParamValidator().validate(arguments, operation.input_shape)
    if report.has_errors():
        return str(report.generate_report())
    serialized = create_serializer("rest-json").serialize_to_request(arguments, operation)
    without_model = {name: value for name, value in body.items() if name != "modelId"}
    if json.loads(serialized["body"]) != msgspec.json.decode(canonical_json(without_model)):
        return "another body leaves"
    return ""


def conversation(seed: int) -> Json:
    """A valid request of some turns with calls, pictures, documents, reasoning and cache points."""
    dice = Random(seed)  # noqa: S311
    messages: list[Json] = []
    for turn in range(dice.randint(1, 5)):
        asked: list[Any] = [{"text": f"Question {turn}, " + "and more of it " * dice.randint(1, 20)}]
        asked += dice.sample([picture(), document(), POINT], dice.randint(0, 2))
        messages.append(user(*asked))
        for step in range(dice.randint(0, 3)):
            ids = [f"t{turn}-{step}-{place}" for place in range(dice.randint(1, 3))]
            thought = {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "c2ln"}}}
            messages.append(says(thought, {"text": "Reading."}, *map(called, ids)))
            messages.append(user(*(answers(id_, {"text": "line\n" * dice.randint(1, 300)}) for id_ in ids)))
        messages.append(says({"text": f"Answer {turn}."}))
    messages.append(user({"text": "And now?"}))
    points = 0
    for message in messages:
        for block in list(message["content"]):
            points += block is POINT
            if block is POINT and points > 2:
                message["content"].remove(block)
    return request(*messages, system=[{"text": "Be brief."}, POINT], inferenceConfig={"maxTokens": 900})


def frame(event: Json) -> bytes:
    """One event as it is on the wire: lengths, headers, a payload, and two checksums."""
    (name, payload), *_ = event.items()
    headers = b""
    for key, value in ((":message-type", "event"), (":event-type", name)):
        headers += bytes([len(key)]) + key.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
    body = json.dumps(payload).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    message = prelude + struct.pack(">I", crc32(prelude)) + headers + body
    return message + struct.pack(">I", crc32(message))


BREAKING: dict[str, Json] = {
    "begins_with_user": request(says(), user()),
    "roles_alternate": request(user(), user()),
    "ends_with_user": request(user(), says(), modelId="us.anthropic.claude-opus-4-6-v1:0"),
    "nothing_is_empty": request(user({"text": " "})),
    "calls_and_results_pair": request(user(answers("t1"))),
    "results_come_first": request(user(), says(called("t1")), user({"text": "a"}, answers("t1"))),
    "ids_are_unique": request(user(), says(called("t1"), called("t1")), user(answers("t1"))),
    "names_and_ids_fit": request(user(), says(called("t1", "fs.read")), user(answers("t1"))),
    "tools_are_defined": {
        "modelId": MODEL,
        "messages": [user(), says(called("t1")), user(answers("t1"))],
    },
    "schemas_are_objects": request(user(), toolConfig={"tools": [{"toolSpec": {"name": "a"}}]}),
    "markers_are_few": request(user({"text": "a"}, POINT, POINT, POINT, POINT, POINT)),
    "media_are_few": request(user({"text": "a"}, *[document()] * 6)),
    "documents_are_named": request(user({"text": "a"}, document("rates.pdf"))),
    "settings_are_in_range": request(user(), inferenceConfig={"temperature": 1.5}),
}

BROKEN = [(rule, "", broken) for rule, broken in BREAKING.items()]
BROKEN += [
    ("calls_and_results_pair", "", request(user(), says(called("t1")), user())),
    ("names_and_ids_fit", "", request(user(), says(called("t 1")), user(answers("t 1")))),
]
