"""Moves that go back: to an earlier turn, to the last prompt, to another branch, or to nothing new at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.fuzzing.client import Client, answer, ask, step
from tests.fuzzing.words import Words

Move = Callable[[Client, Words], bool]


def rewind(client: Client, words: Words) -> bool:
    """Back to an earlier prompt, which is sent again as it was."""
    prompts = client.history.prompts()[:-1]
    if not prompts:
        return False
    del client.history.messages[words.rng.choice(prompts) + 1 :]
    client.edited()
    return True


def rewind_and_differ(client: Client, words: Words) -> bool:
    """Back to before an earlier prompt, and on with another one."""
    prompts = client.history.prompts()[1:]
    if not prompts:
        return False
    del client.history.messages[words.rng.choice(prompts) :]
    client.edited()
    ask(client, words)
    return True


def rewind_into_a_step(client: Client, words: Words) -> bool:
    """Back to the results of an earlier step."""
    steps = client.history.steps()[:-1]
    if not steps:
        return False
    _, end = words.rng.choice(steps)
    del client.history.messages[end:]
    client.edited()
    return True


def regenerate(client: Client, words: Words) -> bool:
    """The newest prompt again, without what the model has said since."""
    del words
    prompts = client.history.prompts()
    if not prompts or prompts[-1] == len(client.history.messages) - 1:
        return False
    del client.history.messages[prompts[-1] + 1 :]
    client.edited()
    return True


def edit_the_prompt(client: Client, words: Words) -> bool:
    prompts = client.history.prompts()
    if not prompts:
        return False
    del client.history.messages[prompts[-1] :]
    client.edited()
    ask(client, words)
    return True


def retry(client: Client, words: Words) -> bool:
    """The same request again."""
    del words
    return bool(client.history.messages)


def fork(client: Client, words: Words) -> bool:
    """A second branch from an earlier prompt on; the client works on both."""
    prompts = client.history.prompts()
    if client.history.other is not None or not prompts:
        return False
    client.history.other = client.history.copied()
    del client.history.messages[words.rng.choice(prompts) + 1 :]
    client.edited()
    answer(client, words)
    ask(client, words)
    return True


def switch(client: Client, words: Words) -> bool:
    """On with the other branch."""
    if client.history.other is None:
        return False
    other = client.history.other
    client.history.other = client.history.messages
    client.history.messages = other
    client.edited()
    if words.rng.random() < 0.5 and client.history.last_voice not in ("", "assistant"):
        step(client, words)
    return True


MOVES: Mapping[str, Move] = {
    move.__name__: move
    for move in (
        rewind,
        rewind_and_differ,
        rewind_into_a_step,
        regenerate,
        edit_the_prompt,
        retry,
        fork,
        switch,
        switch,
    )
}
