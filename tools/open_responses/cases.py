"""The cases, by the ids that the official runner gives them.

A case asks a server once or twice and returns what was wrong, in words. An empty list is a pass.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

from tools.open_responses.calls import Answer, Api, Json, ReadStream, read_stream
from tools.open_responses.schema import check_compaction, check_event, check_response
from tools.open_responses.stream_order import LAST_EVENTS, check_order

NO_ENDPOINT = (404, 405, 501)
"""Statuses with which a server says that it does not have an endpoint."""


class NotServed(Exception):
    """The server does not have what a case is about, and need not have it."""


class ComplianceCase(NamedTuple):
    """One case: its id in the official runner, and what asks the server and returns the problems."""

    id: str
    ask: Callable[[Api], list[str]]


WEATHER_TOOL: Json = {
    "type": "function",
    "name": "get_weather",
    "description": "Look up today's weather in a town.",
    "parameters": {
        "type": "object",
        "properties": {"town": {"type": "string", "description": "The name of the town."}},
        "required": ["town"],
    },
}
WEATHER_QUESTION = "Do I need an umbrella in Bergen today? Look it up."


def user(content: Any) -> Json:
    return {"type": "message", "role": "user", "content": content}


def assistant(text: str, **fields: Any) -> Json:
    return {"type": "message", "role": "assistant", "content": text, **fields}


def ask_plainly(api: Api) -> list[str]:
    return check_text_answer(api.create(user("Name three colours of the rainbow.")))


def ask_for_stream(api: Api) -> list[str]:
    stream = read_stream(api.create(user("Write the letters from A to E."), stream=True))
    return [*check_stream(stream), *check_completed(find_whole(stream))]


def ask_with_system_text(api: Api) -> list[str]:
    system = {"type": "message", "role": "system", "content": "You answer like a ship's captain."}
    return check_text_answer(api.create(system, user("Good morning.")))


def ask_for_call(api: Api) -> list[str]:
    whole, problems = check_whole(api.create(user(WEATHER_QUESTION), tools=[WEATHER_TOOL]))
    return [*problems, *check_has_item(whole, "function_call")]


def ask_for_streamed_call(api: Api) -> list[str]:
    stream = read_stream(api.create(user(WEATHER_QUESTION), tools=[WEATHER_TOOL], stream=True))
    return [*check_stream(stream), *check_call_events(stream)]


def ask_and_bring_result(api: Api) -> list[str]:
    """The model must call a tool, and reads its result in a request that continues the answer by its id."""
    choice = {"type": "function", "name": WEATHER_TOOL["name"]}
    question = user(WEATHER_QUESTION)
    whole, problems = check_whole(api.create(question, tools=[WEATHER_TOOL], tool_choice=choice))
    calls = [item for item in list_output(whole) if item.get("type") == "function_call"]
    if not calls:
        return [*problems, "the first answer has no function_call"]
    results: list[Json] = []
    for call in calls:
        result = {"type": "function_call_output", "call_id": call.get("call_id"), "output": "Heavy rain."}
        results.append(result)
    return [*problems, *check_text_answer(api.create(*results, previous_response_id=whole.get("id")))]


def ask_about_image(api: Api) -> list[str]:
    parts = [
        {"type": "input_text", "text": "Which colour has this square?"},
        {"type": "input_image", "image_url": write_data_url("image/png", make_square())},
    ]
    return check_text_answer(api.create(user(parts)))


def ask_about_file(api: Api) -> list[str]:
    parts = [
        {"type": "input_text", "text": "What does the first line of this file say?"},
        {
            "type": "input_file",
            "filename": "note.pdf",
            "file_data": write_data_url("application/pdf", make_page("The harbour opens at six.")),
        },
    ]
    return check_text_answer(api.create(user(parts)))


def ask_in_third_turn(api: Api) -> list[str]:
    turns = (
        user("My boat is called Marten."),
        assistant("A fine name for a boat. What would you like to know?"),
        user("What is my boat called?"),
    )
    return check_text_answer(api.create(*turns))


def ask_by_previous_id(api: Api) -> list[str]:
    whole, problems = check_whole(api.create(user("The password is heron. Just say yes.")))
    if not whole:
        return problems
    answer = api.create(user("What is the password?"), previous_response_id=whole.get("id"))
    return [*problems, *check_text_answer(answer)]


def ask_with_phases(api: Api) -> list[str]:
    turns = (
        assistant("I will add the two numbers.", phase="commentary"),
        assistant("The sum is nine.", phase="final_answer"),
        user("Say that again, as a digit."),
    )
    return check_text_answer(api.create(*turns))


def ask_to_compact(api: Api) -> list[str]:
    turns = (
        user("We meet at the lighthouse on Friday."),
        assistant("Noted: the lighthouse, on Friday."),
    )
    answer = find_endpoint(api.compact_with_model(*turns))
    if answer.status != 200:
        return [f"the status is {answer.status}"]
    whole = answer.json
    problems = check_compaction(whole)
    if not isinstance(whole, dict):
        return problems
    return [*problems, *check_has_item(whole, "compaction")]


def ask_to_compact_without_model(api: Api) -> list[str]:
    answer = find_endpoint(api.compact(user("Make this shorter.")))
    if answer.status in (400, 422):
        return []
    return [f"the status is {answer.status}, not 400 or 422"]


CASES = (
    ComplianceCase("basic-response", ask_plainly),
    ComplianceCase("assistant-phase", ask_with_phases),
    ComplianceCase("streaming-response", ask_for_stream),
    ComplianceCase("system-prompt", ask_with_system_text),
    ComplianceCase("tool-calling", ask_for_call),
    ComplianceCase("tool-calling-streaming", ask_for_streamed_call),
    ComplianceCase("function-call-roundtrip", ask_and_bring_result),
    ComplianceCase("image-input", ask_about_image),
    ComplianceCase("file-input", ask_about_file),
    ComplianceCase("multi-turn", ask_in_third_turn),
    ComplianceCase("previous-response-id", ask_by_previous_id),
    ComplianceCase("compact-response", ask_to_compact),
    ComplianceCase("compact-missing-model", ask_to_compact_without_model),
)

NEEDS_WEBSOCKET = "it needs a WebSocket; the gateway answers 426, and clients use POST instead"
NO_REQUEST = "it asks no server: it checks the schema itself"
NEEDS_SERVER_TOOL = "it is optional, and needs a tool that the server runs itself"

NOT_APPLICABLE = {
    "response-output-phase-schema": NO_REQUEST,
    "file-search": NEEDS_SERVER_TOOL,
    "offline-web-search": NEEDS_SERVER_TOOL,
    "websocket-response": NEEDS_WEBSOCKET,
    "websocket-sequential-responses": NEEDS_WEBSOCKET,
    "websocket-continuation": NEEDS_WEBSOCKET,
    "websocket-generate-false": NEEDS_WEBSOCKET,
    "websocket-reconnect-store-false-recovery": NEEDS_WEBSOCKET,
    "websocket-previous-response-not-found": NEEDS_WEBSOCKET,
    "websocket-failed-continuation-evicts-cache": NEEDS_WEBSOCKET,
    "websocket-compact-new-chain": NEEDS_WEBSOCKET,
}
"""Cases of the official runner that are not asked here, with the reason."""


def check_text_answer(answer: Answer) -> list[str]:
    """A whole answer that has an output and is complete."""
    whole, problems = check_whole(answer)
    if not whole:
        return problems
    if not list_output(whole):
        problems.append("the answer has no output")
    return [*problems, *check_completed(whole)]


def check_whole(answer: Answer) -> tuple[Json, list[str]]:
    """An answer's value and what is wrong with its shape. The value is {} if there is none."""
    if answer.status != 200:
        return {}, [f"the status is {answer.status}"]
    whole = answer.json
    problems = check_response(whole)
    if not isinstance(whole, dict):
        return {}, problems
    return whole, problems


def check_stream(stream: ReadStream) -> list[str]:
    """Every event, their order, and the whole answer in the last of them."""
    problems = list(stream.problems)
    if not stream.events:
        return [*problems, "the stream has no events"]
    for event in stream.events:
        problems += check_event(event)
    problems = list(dict.fromkeys(problems))  # the same mistake in each of a hundred events is one
    return [*problems, *check_order(stream.events)]


def check_completed(whole: Json) -> list[str]:
    if whole.get("status") == "completed":
        return []
    return [f"the answer has the status {whole.get('status')}"]


def check_has_item(whole: Json, item_type: str) -> list[str]:
    if any(item.get("type") == item_type for item in list_output(whole)):
        return []
    return [f"the answer has no {item_type}"]


def check_call_events(stream: ReadStream) -> list[str]:
    """A call arrives in four kinds of events: it begins, gets its arguments, has them all, and ends."""
    seen: set[str] = set()
    for event in stream.events:
        item = event.get("item")
        if not isinstance(item, dict) or item.get("type") == "function_call":
            seen.add(str(event.get("type")))
    needed = (
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
    )
    return [f"no {event_type} of a function_call" for event_type in needed if event_type not in seen]


def find_whole(stream: ReadStream) -> Json:
    """The whole answer in the event that ends a stream; {} if nothing ends it."""
    for event in reversed(stream.events):
        response = event.get("response")
        if event.get("type") in LAST_EVENTS and isinstance(response, dict):
            return response
    return {}


def find_endpoint(answer: Answer) -> Answer:
    """The answer of an endpoint that a server may have. Raises NotServed if it does not."""
    if answer.status in NO_ENDPOINT:
        raise NotServed(f"the server does not have this endpoint: {answer.status}")
    return answer


def list_output(whole: Json) -> list[Json]:
    output = whole.get("output")
    if not isinstance(output, list):
        return []
    return [item for item in output if isinstance(item, dict)]


def write_data_url(media_type: str, data: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def make_square(side: int = 16) -> bytes:
    """A PNG picture of a blue square."""
    rows = (b"\0" + b"\x20\x40\xc0" * side) * side
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    chunks = b""
    for name, data in ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")):
        chunks += struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    return b"\x89PNG\r\n\x1a\n" + chunks


def make_page(text: str) -> bytes:
    """A PDF file with one line of text."""
    content = f"BT /F1 14 Tf 40 80 Td ({text}) Tj ET".encode()
    objects = (
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 320 120]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
        b"<</Length %d>>stream\n%s\nendstream" % (len(content), content),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    )
    page = b"%PDF-1.4\n"
    offsets: list[int] = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(page))
        page += b"%d 0 obj%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    count = len(objects) + 1
    trailer = b"trailer<</Root 1 0 R/Size %d>>\nstartxref\n%d\n%%%%EOF\n" % (count, len(page))
    return page + b"xref\n0 %d\n0000000000 65535 f \n" % count + table + trailer
