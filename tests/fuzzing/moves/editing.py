"""Moves that change or take away what was said before."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from random import Random

from tests.fuzzing.client import Client, answer, ask
from tests.fuzzing.history import Message, Piece
from tests.fuzzing.words import Words

Move = Callable[[Client, Words], bool]


def redact_a_prompt(client: Client, words: Words) -> bool:
    found = _older(client, words.rng, lambda message: message.voice == "user")
    if found is None:
        return False
    text = words.rng.choice(("[removed by the user]", words.text(8)))
    found.pieces = [Piece(sort="text", text=text)]
    return _done(client, found)


def edit_an_answer(client: Client, words: Words) -> bool:
    found = _older(
        client, words.rng, lambda message: message.voice == "assistant" and bool(message.of("text"))
    )
    if found is None:
        return False
    found.of("text")[0].text = words.text(20)
    return _done(client, found)


def clear_a_result(client: Client, words: Words) -> bool:
    found = _older(client, words.rng, lambda message: bool(message.of("result")))
    if found is None:
        return False
    for piece in found.of("result"):
        piece.text = "[cleared]"
        piece.data = None
    return _done(client, found)


def clear_old_results(client: Client, words: Words) -> bool:
    """All results but those of the last steps, as many agents do when their window fills up."""
    tools = [message for message in client.history.messages if message.of("result")]
    old = tools[: -words.rng.choice((1, 2, 3))]
    for message in old:
        for piece in message.of("result"):
            piece.text = "[Old tool result content cleared]"
            piece.data = None
        message.changed()
    client.edited()
    return bool(old)


def shorten_a_result(client: Client, words: Words) -> bool:
    found = _older(client, words.rng, lambda message: bool(message.of("result")))
    if found is None:
        return False
    piece = words.rng.choice(found.of("result"))
    piece.text = f"{piece.text[: max(len(piece.text) // 3, 5)]} …"
    return _done(client, found)


def change_arguments(client: Client, words: Words) -> bool:
    found = _older(client, words.rng, lambda message: bool(message.of("call")))
    if found is None:
        return False
    call = words.rng.choice(found.of("call"))
    call.text = json.dumps({"path": f"src/{words.canary()}.py", "limit": 5})
    return _done(client, found)


def edit_a_reminder(client: Client, words: Words) -> bool:
    found = _older(client, words.rng, lambda message: message.voice == "system")
    if found is None:
        return False
    found.pieces[0].text = words.text(10)
    return _done(client, found)


def drop_thinking(client: Client, words: Words) -> bool:
    """Without the reasoning of all steps but the last, as some clients do."""
    del words
    thinking = [m for m in client.history.messages[:-3] if m.of("thinking", "redacted")]
    for message in thinking:
        message.pieces = [p for p in message.pieces if p.sort not in ("thinking", "redacted")]
        message.changed()
    client.history.messages = [message for message in client.history.messages if message.pieces]
    client.edited()
    return bool(thinking)


def delete_a_message(client: Client, words: Words) -> bool:
    """One message, whatever it is: a call may be left without its result, or the reverse."""
    messages = client.history.messages
    if len(messages) < 3:
        return False
    del messages[_early(words.rng, len(messages) - 1)]
    return _go_on_after_deleting(client, words)


def delete_a_pair(client: Client, words: Words) -> bool:
    """A prompt with the answer to it."""
    messages = client.history.messages
    pairs = [
        i
        for i in range(len(messages) - 2)
        if messages[i].voice == "user"
        and messages[i + 1].voice == "assistant"
        and not messages[i + 1].of("call")
    ]
    if not pairs:
        return False
    at = pairs[_early(words.rng, len(pairs))]
    del messages[at : at + 2]
    return _go_on_after_deleting(client, words)


def delete_a_step(client: Client, words: Words) -> bool:
    steps = client.history.steps()[:-1]
    if not steps:
        return False
    start, end = steps[_early(words.rng, len(steps))]
    del client.history.messages[start:end]
    return _go_on_after_deleting(client, words)


def drop_the_oldest(client: Client, words: Words) -> bool:
    """A sliding window that begins with a prompt."""
    prompts = client.history.prompts()[1:]
    if not prompts:
        return False
    del client.history.messages[: words.rng.choice(prompts)]
    return _go_on_after_deleting(client, words)


def keep_the_newest(client: Client, words: Words) -> bool:
    """A sliding window by count, which may begin anywhere: with an answer, a result, a reminder."""
    messages = client.history.messages
    keep = words.rng.choice((2, 3, 4, 6, 7, 10))
    if len(messages) <= keep:
        return False
    del messages[:-keep]
    return _go_on_after_deleting(client, words)


def keep_first_and_newest(client: Client, words: Words) -> bool:
    messages = client.history.messages
    keep = words.rng.choice((2, 3, 4, 6, 7, 10))
    if len(messages) <= keep + 1:
        return False
    del messages[1:-keep]
    return _go_on_after_deleting(client, words)


def begin_at_a_reminder(client: Client, words: Words) -> bool:
    """A sliding window that happens to begin with a system message."""
    reminders = [i for i, message in enumerate(client.history.messages) if i and message.voice == "system"]
    if not reminders:
        return False
    del client.history.messages[: words.rng.choice(reminders)]
    return _go_on_after_deleting(client, words)


def compact(client: Client, words: Words) -> bool:
    """The client's own summary instead of all but the newest messages."""
    prompts = client.history.prompts()
    if len(prompts) < 2:
        return False
    rest = client.history.messages[prompts[-1] :]
    client.history.messages = []
    summary = f"This conversation continues an earlier one. Summary: {words.text(40)}"
    client.history.add("user", [Piece(sort="text", text=summary)])
    answer(client, words)
    client.history.messages += rest
    client.edited()
    return True


def _older(client: Client, rng: Random, wanted: Callable[[Message], bool]) -> Message | None:
    """A message of this sort, rather an old one."""
    found = [message for message in client.history.messages if wanted(message)]
    return found[_early(rng, len(found))] if found else None


def _early(rng: Random, count: int) -> int:
    """A position, rather an early one: that is what was folded."""
    return min(rng.randrange(count), rng.randrange(count))


def _done(client: Client, message: Message) -> bool:
    message.changed()
    client.edited()
    return True


def _go_on_after_deleting(client: Client, words: Words) -> bool:
    """Mostly the client goes on at once, sometimes it sends what is left."""
    client.edited()
    if not client.history.messages or client.history.last_voice in ("assistant", "system"):
        ask(client, words)
    elif words.rng.random() < 0.5:
        answer(client, words)
        ask(client, words)
    return True


MOVES: Mapping[str, Move] = {
    move.__name__: move
    for move in (
        redact_a_prompt,
        edit_an_answer,
        clear_a_result,
        clear_old_results,
        shorten_a_result,
        change_arguments,
        edit_a_reminder,
        drop_thinking,
        delete_a_message,
        delete_a_pair,
        delete_a_step,
        drop_the_oldest,
        keep_the_newest,
        keep_first_and_newest,
        begin_at_a_reminder,
        compact,
    )
}
