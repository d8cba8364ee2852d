"""Moves that change what a request is sent with, or only how it is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.fuzzing.client import Client, tool_named
from tests.fuzzing.moves.adding import go_on
from tests.fuzzing.profiles import MODELS
from tests.fuzzing.words import Words

Move = Callable[[Client, Words], bool]

MANY_MARKERS = 6
"""More than any API takes."""


def change_the_model(client: Client, words: Words) -> bool:
    client.settings.model = words.rng.choice(MODELS[client.settings.dialect])
    for message in client.history.messages:
        message.changed()  # some models take no markers
    return go_on(client, words)


def change_the_window(client: Client, words: Words) -> bool:
    factor = words.rng.choice((0.5, 0.7, 1.5, 2))
    client.settings.window = max(int(client.settings.window * factor), 400)
    _keep_the_reserve_below(client)
    return go_on(client, words)


def change_the_reserve(client: Client, words: Words) -> bool:
    client.settings.reserve = words.rng.choice((None, 0, client.settings.window // 5))
    return go_on(client, words)


def change_the_counter(client: Client, words: Words) -> bool:
    client.settings.counter = words.rng.choice(("", "chars4", "strict", "estimate", "rfc"))
    return go_on(client, words)


def change_the_tools(client: Client, words: Words) -> bool:
    tools = list(client.settings.tools)
    if tools and words.rng.random() < 0.5:
        tools.pop(words.rng.randrange(len(tools)))
    else:
        tools.append(tool_named(f"tool_{words.canary()}", words))
    client.settings.tools = tools
    return go_on(client, words)


def change_the_system_text(client: Client, words: Words) -> bool:
    added = words.text(12, "english")
    client.settings.system = words.rng.choice((f"{client.settings.system} {added}".strip(" "), added))
    return go_on(client, words)


def move_the_markers(client: Client, words: Words) -> bool:
    """From now on cache markers stand on the newest messages of each request, as coding agents set them."""
    client.marks = not client.marks
    return go_on(client, words)


def set_many_markers(client: Client, words: Words) -> bool:
    """More markers than allowed, and lifetimes in any order."""
    go_on(client, words)
    count = words.rng.randrange(3, MANY_MARKERS + 1)
    client.mark([words.rng.choice(("-", "5m", "1h")) for _ in range(count)])
    return True


def reshape(client: Client, words: Words) -> bool:
    """Strings become lists of blocks, or the reverse: the same content, other JSON."""
    for message in client.history.messages:
        if words.rng.random() < 0.7:
            message.as_string = not message.as_string
            message.changed()
    if words.rng.random() < 0.5 and client.settings.dialect in ("anthropic", "openai_chat"):
        client.settings.system_in_blocks = not client.settings.system_in_blocks
    return go_on(client, words)


def wait_a_while(client: Client, words: Words) -> bool:
    """Long enough for every cache to be cold."""
    client.idle = 90_000.0
    return go_on(client, words)


def _keep_the_reserve_below(client: Client) -> None:
    settings = client.settings
    settings.output = settings.window // 8
    if settings.reserve is not None:
        settings.reserve = min(settings.reserve, settings.window // 2)


MOVES: Mapping[str, Move] = {
    move.__name__: move
    for move in (
        change_the_model,
        change_the_window,
        change_the_reserve,
        change_the_counter,
        change_the_tools,
        change_the_system_text,
        move_the_markers,
        set_many_markers,
        reshape,
        wait_a_while,
    )
}
