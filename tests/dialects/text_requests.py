"""Requests of flat prompts for tests: a valid one, and one that breaks each rule."""

from __future__ import annotations

from typing import Any

from tests.dialects.broken import Change, list_broken

Json = dict[str, Any]

VALID: Json = {
    "model": "gpt-3.5-turbo-instruct",
    "prompt": "User: hi\nAssistant:",
    "max_tokens": 50,
    "temperature": 0.5,
    "stop": ["\nUser:"],
    "stream": False,
}


BREAKS: dict[str, list[Change]] = {
    "prompt_is_one_text": [
        lambda r: r.pop("prompt"),
        lambda r: r.update(prompt=""),
        lambda r: r.update(prompt=["a", "b"]),
        lambda r: r.update(prompt=[1, 2]),
    ],
    "prompt_can_be_encoded": [lambda r: r.update(prompt="a\ud800")],
    "nothing_else_speaks": [
        lambda r: r.update(messages=[{"role": "user", "content": "x"}]),
        lambda r: r.update(tools=[{"type": "function"}]),
    ],
    "model_is_named": [lambda r: r.update(model=""), lambda r: r.update(model=5)],
    "numbers_are_possible": [
        lambda r: r.update(max_tokens=-1),
        lambda r: r.update(max_tokens=1.5),
        lambda r: r.update(temperature="hot"),
        lambda r: r.update(top_p=True),
    ],
    "stops_are_texts": [lambda r: r.update(stop=5), lambda r: r.update(stop=["a", None])],
}

BROKEN = list_broken(VALID, BREAKS)
