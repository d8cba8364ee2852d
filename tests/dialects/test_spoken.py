"""One segment is erased from a request: all that it says goes, its frame stays, and so does every other."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from lamina import Segment
from lamina.core import Raw, ToolCall, ToolResult
from lamina.dialects import DIALECTS
from lamina.dialects.spoken import ERASED_TEXT, erase_segments
from tests.fixtures.wire_samples import ANSWERS, REQUESTS

TEXT = {"model": "m", "prompt": "System: Be brief.\n\nUser: Where is it?\n\nAssistant:"}
NAMED_BY_LAMINA = "audio.wav"
SAMPLES = [*REQUESTS.items(), ("text", TEXT)]


def identify(segment: Segment) -> str:
    """What a segment says, without what depends on its call: attributes, and ids where the API has none."""
    parts = [msgspec.to_builtins(part) for part in segment.parts]
    for part in parts:
        part.pop("id", None)
    return json.dumps([segment.role, parts])


def list_words(segment: Segment) -> list[str]:
    """The longer words that a segment says."""
    words: list[str] = []
    for part in segment.parts:
        if isinstance(part, ToolCall):
            words += (str(value) for value in json.loads(part.arguments or "{}").values())
        elif isinstance(part, ToolResult):
            words += (getattr(inner, "text", "") for inner in part.content)
        elif isinstance(part, Raw):
            words.append(json.dumps(part.data))
        else:
            words += (value for value in msgspec.structs.astuple(part) if isinstance(value, str))
    return [word for word in words if len(word) > 7 and "/" not in word and word != NAMED_BY_LAMINA]


@pytest.mark.parametrize(("name", "request_sample"), SAMPLES)
def test_each_segment_goes_alone(name: str, request_sample: Any) -> None:
    dialect = DIALECTS[name]
    request = msgspec.json.decode(msgspec.json.encode(request_sample))
    log = dialect.wire.parse(request).log
    assert erase_segments(request, []) is request
    for at, segment in enumerate(log):
        erased = erase_segments(request, [segment])
        assert erased is not request, segment
        again = dialect.wire.parse(erased).log
        contents = [*map(identify, log)]
        contents_after = [*map(identify, again)]
        equal = {place for place, content in enumerate(contents) if content == contents[at]}
        assert len(again) == len(log)
        changed = {place for place in range(len(log)) if contents[place] != contents_after[place]}
        assert changed <= equal, (segment, [again[place] for place in changed - equal])
        left = json.dumps([*map(msgspec.to_builtins, again[at].parts)])
        assert not [word for word in list_words(segment) if json.dumps(word)[1:-1] in left]
        assert {**erased, **dict.fromkeys(turn_fields(request))} == {
            **request,
            **dict.fromkeys(turn_fields(request)),
        }


def turn_fields(request: dict[str, Any]) -> set[str]:
    return {"messages", "input", "contents", "system", "instructions", "systemInstruction", "prompt"} & {
        *request
    }


@pytest.mark.parametrize("name", [name for name in ANSWERS if name != "ollama"])
def test_an_answer_loses_one_segment(name: str) -> None:
    answer = msgspec.json.decode(msgspec.json.encode(ANSWERS[name]))
    segments = DIALECTS[name].answers.absorb(answer).segments
    for segment in segments:
        erased = erase_segments(answer, [segment])
        again = DIALECTS[name].answers.absorb(erased)
        assert len(again.segments) == len(segments)
        assert again.usage == DIALECTS[name].answers.absorb(answer).usage
        assert again.stop == DIALECTS[name].answers.absorb(answer).stop


def test_the_frame_of_a_call_stays_and_the_names_of_its_fields_go() -> None:
    call = {"type": "tool_use", "id": "t1", "name": "pay", "input": {"4111": 4111}}
    text = {"type": "text", "text": "Paying."}
    request = {"model": "m", "max_tokens": 9, "messages": [{"role": "assistant", "content": [text, call]}]}
    log = DIALECTS["anthropic"].wire.parse(request).log
    [erased_message] = erase_segments(request, [log[1]])["messages"]
    assert erased_message["content"] == [text, {**call, "input": {}}]
    [erased_message] = erase_segments(request, [log[0]])["messages"]
    assert erased_message["content"] == [{"type": "text", "text": ERASED_TEXT}, call]
