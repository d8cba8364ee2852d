"""Moves that add to a history, as it should be done and as it is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from tests.fuzzing.client import (
    REMINDER,
    Client,
    answer,
    ask,
    document,
    picture,
    poll,
    results,
    share_of,
    step,
)
from tests.fuzzing.history import Piece
from tests.fuzzing.words import Words

Move = Callable[[Client, Words], bool]

_STEPS = {"chat": 0.1, "agent": 0.85, "mixed": 0.5, "polls": 0.6, "says the same": 0.3}
"""How often the model calls a tool, by the habit of a client."""


def go_on(client: Client, words: Words) -> bool:
    """The conversation goes on as such conversations do."""
    habit = client.profile.habit
    if _waiting_at_the_end(client) and words.rng.random() < 0.5:
        call_again(client, words)
    elif client.history.last_voice in ("", "assistant"):
        ask(client, words)
    elif words.rng.random() >= _STEPS[habit]:
        answer(client, words)
        ask(client, words)
    elif habit == "polls":
        poll(client, words)
    else:
        step(client, words)
    return True


def resume(client: Client, words: Words) -> bool:
    """Many turns at once: a saved conversation, or one that went on elsewhere."""
    for _ in range(words.rng.randrange(3, 12)):
        go_on(client, words)
    return True


def paste_a_long_prompt(client: Client, words: Words) -> bool:
    _let_the_model_end(client, words)
    ask(client, words, tokens=share_of(client, words.rng, (0.3, 0.4, 0.6, 0.8, 1.2)))
    return True


def take_a_step(client: Client, words: Words) -> bool:
    if client.history.last_voice in ("", "assistant"):
        ask(client, words)
    step(client, words)
    return True


def call_in_parallel(client: Client, words: Words) -> bool:
    if client.history.last_voice in ("", "assistant"):
        ask(client, words)
    step(client, words, calls=words.rng.choice((2, 3, 5)))
    return True


def poll_a_tool(client: Client, words: Words) -> bool:
    if client.history.last_voice in ("", "assistant"):
        ask(client, words)
    for _ in range(words.rng.choice((1, 1, 4))):
        poll(client, words)
    return True


def remind(client: Client, words: Words) -> bool:
    """A system message within the conversation, where the API takes one."""
    if client.settings.dialect == "gemini":
        return False
    go_on(client, words)
    client.history.add("system", [Piece(sort="text", text=_reminder(client, words))])
    return True


def attach(client: Client, words: Words) -> bool:
    _let_the_model_end(client, words)
    message = ask(client, words)
    message.pieces.append(picture() if words.rng.random() < 0.5 else document(client, words))
    return True


def add_an_item(client: Client, words: Words) -> bool:
    """An item of the Responses API that is no message: beside, before or within a step."""
    if client.settings.dialect != "openai_responses":
        return False
    name = words.canary()
    item = words.rng.choice(
        (
            {"type": "item_reference", "id": f"msg_{name}"},
            {"type": "compaction", "id": f"cmp_{name}", "encrypted_content": f"abc{name}"},
            {
                "type": "web_search_call",
                "id": f"ws_{name}",
                "status": "completed",
                "action": {"type": "search"},
            },
            {"type": "additional_tools", "role": "developer", "tools": []},
            {"type": "configuration_update", "reasoning": {"effort": "low"}},
        )
    )
    if client.history.last_voice in ("", "assistant"):
        ask(client, words)
    message = step(client, words, calls=2)
    piece = Piece(sort="item", data=item)
    place = words.rng.choice(("before", "within", "after"))
    if place == "before":
        message.pieces.insert(0, piece)
    elif place == "within":
        message.pieces.insert(len(message.pieces) - 1, piece)
    else:
        client.history.messages[-1].pieces.append(piece)
    return True


def say_nothing(client: Client, words: Words) -> bool:
    """A blank message, or a blank text beside others."""
    rng = words.rng
    _let_the_model_end(client, words)
    message = ask(client, words)
    blank = Piece(sort="text", text=rng.choice((" ", "", "\n", "\t ")))
    if rng.random() < 0.5:
        message.pieces = [blank]
    else:
        message.pieces.insert(rng.randrange(len(message.pieces) + 1), blank)
    if rng.random() < 0.5:
        answer(client, words)
        ask(client, words)
    return True


def stop_the_model(client: Client, words: Words) -> bool:
    """The user interrupts while tools run: calls without results, and a new prompt."""
    if client.history.last_voice in ("", "assistant"):
        ask(client, words)
    message = step(client, words, calls=words.rng.choice((1, 2)), answered=False)
    calls = message.of("call")
    if len(calls) > 1 and words.rng.random() < 0.5:
        piece = Piece(sort="result", id=calls[0].id, name=calls[0].name, text=words.text(20))
        client.history.add("tool", [piece])
    if words.rng.random() < 0.6:
        ask(client, words)
    return True


def call_again(client: Client, words: Words) -> bool:
    """The model makes the same call again before it has the result; then both are answered."""
    if not _waiting_at_the_end(client):
        if client.history.last_voice in ("", "assistant"):
            ask(client, words)
        step(client, words, calls=1, answered=False)
    first = client.history.messages[-1].of("call")[0]
    again = msgspec.structs.replace(first, id=f"call_{words.canary()}")
    client.history.add("assistant", [Piece(sort="text", text=words.text(6)), again])
    results(client, words, [*client.history.messages[-2].of("call"), again])
    return True


def _waiting_at_the_end(client: Client) -> bool:
    messages = client.history.messages
    return bool(messages) and bool(messages[-1].of("call"))


def answer_late(client: Client, words: Words) -> bool:
    """The result of a call that has none yet arrives after other messages."""
    waiting = _unanswered(client)
    if not waiting:
        stop_the_model(client, words)
        waiting = _unanswered(client)
    call = words.rng.choice(waiting)
    client.history.add("tool", [Piece(sort="result", id=call.id, name=call.name, text=words.text(30))])
    if words.rng.random() < 0.5:
        ask(client, words)
    return True


def _unanswered(client: Client) -> list[Piece]:
    messages = client.history.messages
    answered = {piece.id for message in messages for piece in message.of("result")}
    return [piece for message in messages for piece in message.of("call") if piece.id not in answered]


def answer_twice(client: Client, words: Words) -> bool:
    """A second result for a call, beside the first or later."""
    tools = [message for message in client.history.messages if message.of("result")]
    if not tools:
        return False
    message = words.rng.choice(tools)
    first = words.rng.choice(message.of("result"))
    text = first.text if words.rng.random() < 0.5 else words.text(20)
    twin = Piece(sort="result", id=first.id, name=first.name, text=text)
    if words.rng.random() < 0.5:
        message.pieces.append(twin)
        message.changed()
        client.edited()
    else:
        client.history.add("tool", [twin])
    return True


def reuse_an_id(client: Client, words: Words) -> bool:
    """A server that gives every call the same id."""
    if client.history.last_voice in ("", "assistant"):
        ask(client, words)
    message = step(client, words, calls=1, answered=False)
    call = message.of("call")[0]
    call.id = "call_0"
    client.history.add("tool", [Piece(sort="result", id=call.id, name=call.name, text=words.text(30))])
    return True


def prompt_twice(client: Client, words: Words) -> bool:
    """Two messages of the user in a row."""
    _let_the_model_end(client, words)
    ask(client, words)
    ask(client, words)
    return True


def speak_twice(client: Client, words: Words) -> bool:
    """Two messages of the model in a row, the second with a call."""
    if client.history.last_voice in ("", "assistant"):
        ask(client, words)
    answer(client, words)
    step(client, words)
    return True


def prefill(client: Client, words: Words) -> bool:
    """The client begins the answer itself."""
    _let_the_model_end(client, words)
    ask(client, words)
    client.history.add("assistant", [Piece(sort="text", text=f"{words.canary()} {{")])
    return True


def remind_before_the_prompt(client: Client, words: Words) -> bool:
    """A system message where the Messages API does not want one: before the user's."""
    if client.settings.dialect == "gemini":
        return False
    _let_the_model_end(client, words)
    client.history.add("system", [Piece(sort="text", text=_reminder(client, words))])
    ask(client, words)
    return True


def name_a_tool_oddly(client: Client, words: Words) -> bool:
    """A name that came from elsewhere: with a dot, as servers of tools have them."""
    if client.history.last_voice in ("", "assistant"):
        ask(client, words)
    message = step(client, words, calls=1)
    name = words.rng.choice(("server.read", "a b", "über", "x" * 70))
    for piece in (*message.of("call"), *client.history.messages[-1].of("result")):
        piece.name = name
    return True


def _let_the_model_end(client: Client, words: Words) -> None:
    if client.history.last_voice not in ("", "assistant"):
        answer(client, words)


def _reminder(client: Client, words: Words) -> str:
    match client.profile.reminders:
        case "large":
            return words.text(share_of(client, words.rng, (0.1, 0.2)))
        case "new":
            return words.text(15)
    return REMINDER


MOVES: Mapping[str, Move] = {
    move.__name__: move
    for move in (
        go_on,
        resume,
        paste_a_long_prompt,
        take_a_step,
        call_in_parallel,
        poll_a_tool,
        remind,
        attach,
        add_an_item,
    )
}

ODD_MOVES: Mapping[str, Move] = {
    move.__name__: move
    for move in (
        say_nothing,
        stop_the_model,
        call_again,
        answer_late,
        answer_twice,
        reuse_an_id,
        prompt_twice,
        speak_twice,
        prefill,
        remind_before_the_prompt,
        name_a_tool_oddly,
    )
}
