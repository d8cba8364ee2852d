"""Checks a request with one flat prompt. Rules are small functions that change nothing.

They hold for completion endpoints of all kinds. What a prompt says is not judged: it is one text.
"""

from __future__ import annotations

from lamina.dialects.json_values import text_or_empty
from lamina.dialects.memos import CheckMemo
from lamina.dialects.port import Request, Violation
from lamina.dialects.rules import Faults, apply_rules, name_rules

_NUMBER_TYPES: dict[str, tuple[type[float], ...]] = {
    "max_tokens": (int,),
    "temperature": (int, float),
    "top_p": (int, float),
    "n": (int,),
}


def check(request: Request, *, memo: CheckMemo | None = None) -> list[Violation]:
    """Every rule that the request breaks. A prompt is one text, so the memo is not used."""
    del memo
    return apply_rules(RULES, request)


def prompt_is_one_text(request: Request) -> Faults:
    """T1: the prompt is one string that is not empty; lists of prompts are requests of their own.

    `["a", "b"]` asks two things at once, and would get two answers.
    """
    if not text_or_empty(request.get("prompt")):
        yield "prompt", "not one text that says something"


def prompt_can_be_encoded(request: Request) -> Faults:
    """T2: the prompt has no half of a surrogate pair, which UTF-8 cannot carry."""
    try:
        text_or_empty(request.get("prompt")).encode()
    except UnicodeEncodeError as error:
        yield "prompt", f"a lone surrogate at character {error.start}"


def nothing_else_speaks(request: Request) -> Faults:
    """T3: beside a flat prompt there are no messages, and no tools to call.

    `{"prompt": "Hi", "messages": […]}` breaks it: a server would answer one of the two.
    """
    for name in ("messages", "tools", "tool_choice", "functions", "contents"):
        if request.get(name):
            yield name, "has no place beside a flat prompt"


def model_is_named(request: Request) -> Faults:
    """T4: a model, where one is given, is a string that is not empty.

    Some servers have one model only, so the field may be absent.
    """
    model = request.get("model")
    if model is not None and not text_or_empty(model):
        yield "model", "not the name of a model"


def numbers_are_possible(request: Request) -> Faults:
    """T5: limits are whole and not negative, sampling parameters are numbers.

    `{"temperature": 0.5}` is possible, `{"max_tokens": 1.5}` and `{"n": -1}` are not.
    """
    for name, types in _NUMBER_TYPES.items():
        value = request.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, types) or value < 0:
            yield name, "not a number that is possible here"


def stops_are_texts(request: Request) -> Faults:
    """T6: stop is a string or a list of strings.

    `"END"` and `["END", "STOP"]` are valid, `["END", null]` is not.
    """
    match request.get("stop"):
        case None | str():
            return
        case list() | tuple() as texts if all(isinstance(text, str) for text in texts):
            return
    yield "stop", "neither a string nor a list of strings"


RULES = name_rules(
    prompt_is_one_text,
    prompt_can_be_encoded,
    nothing_else_speaks,
    model_is_named,
    numbers_are_possible,
    stops_are_texts,
)
