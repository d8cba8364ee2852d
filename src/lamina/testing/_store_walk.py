"""A long random walk of a store beside the store in memory: both must give the same answers and errors."""

from __future__ import annotations

from random import Random
from typing import Any

from lamina.errors import LaminaError
from lamina.stores.memory import MemoryStore
from lamina.stores.port import Once, Rekeyable, Where
from lamina.testing._store_trial import StoreTrial
from lamina.testing.cases import expect_equal

WALK = 400
"""Calls of one walk."""


async def it_does_what_the_store_in_memory_does(trial: StoreTrial) -> None:
    """Some hundred calls of every sort, made up: the same answers and the same errors."""
    async with trial.open() as store:
        model = MemoryStore()
        dice = Random(5)  # noqa: S311
        for step in range(WALK):
            name, arguments = _random_call(dice, trial.workspace, rekeyable=isinstance(store, Rekeyable))
            answer = await _answer(store, name, arguments)
            expected = await _answer(model, name, arguments)
            expect_equal(answer, expected, f"step {step}, {name}{arguments}")


Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Of one call: those by place, and those by name."""


def _random_call(dice: Random, workspace: str, *, rekeyable: bool) -> tuple[str, Arguments]:
    where = Where(f"{workspace}-{dice.randrange(2)}", f"c{dice.randrange(3)}")
    number = dice.randrange(6)
    state = dice.choice((None, b"", b"s", b"t"))
    was = dice.choice((None, None, None, b"", b"s"))
    kind = dice.choices(("append", "read", "list", "delete", "replace"), (10, 6, 2, 1, 2 * rekeyable))[0]
    if kind == "append":
        key = dice.choice((None, None, *"abc"))
        once = None if key is None else Once(key=key, digest=bytes([dice.randrange(2)]))
        group = [dice.randbytes(dice.randrange(5)) for _ in range(dice.randrange(4))]
        expect = dice.choice((None, None, number))
        return kind, ((where, group), {"expect": expect, "was": was, "once": once, "state": state})
    if kind == "read":
        options: dict[str, Any] = dice.choice(
            ({}, {"after": number}, {"last": number}, {"at": [number, 0, number * 2]})
        )
        if "last" not in options:
            options = {**options, "limit": dice.choice((None, 0, 2))}
        return kind, ((where,), options)
    if kind == "list":
        return kind, (
            (where.workspace,),
            {"after": dice.choice(("", "c0", "c1")), "limit": dice.choice((1, 1000))},
        )
    if kind == "replace":
        new = {dice.randrange(3): dice.randbytes(3)}
        return kind, ((where, new), {"expect": number, "was": was, "state": state})
    return kind, ((where,), {})


async def _answer(store: Any, name: str, arguments: Arguments) -> Any:
    """What a call returns, or the type of its error."""
    by_place, by_name = arguments
    try:
        answer = await getattr(store, name)(*by_place, **by_name)
    except LaminaError as error:
        return type(error)
    if name == "list":
        return tuple(answer)
    return answer
