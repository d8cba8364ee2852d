"""Steps that run with or without `await`: code for sync and async clients that is written once.

Steps are a generator. It yields functions without arguments: each is called, and its value (awaited, if there
is something to await) comes back from the `yield`, or its error is raised there. Steps of a stream also yield
`StreamValue(value)`, which goes to whoever reads the stream.

    def send(self) -> Steps:
        answer = yield partial(self.client.send, request)
        return answer

    run(call.send())                # a sync client
    await run_async(call.send())    # an async client
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import Any, NamedTuple


class StreamValue(NamedTuple):
    """A value for whoever reads a stream."""

    value: Any


Steps = Generator[Callable[[], Any] | StreamValue, Any, Any]


def run(steps: Steps) -> Any:
    """Run steps to their end, and return what they return."""
    resume, value = steps.send, None
    while True:
        try:
            step = resume(value)
        except StopIteration as end:
            return end.value
        resume, value = _perform(steps, step)


async def run_async(steps: Steps) -> Any:
    """Do as `run`, and await what is to be awaited."""
    resume, value = steps.send, None
    while True:
        try:
            step = resume(value)
        except StopIteration as end:
            return end.value
        resume, value = await _perform_async(steps, step)


def iterate(steps: Steps, close: Callable[[], Steps]) -> Iterator[Any]:
    """Yield what the steps show. At the end, or when the reader stops before it, run the steps of `close`."""
    resume, value = steps.send, None
    try:
        while True:
            try:
                step = resume(value)
            except StopIteration:
                return
            if isinstance(step, StreamValue):
                yield step.value
                resume, value = steps.send, None
            else:
                resume, value = _perform(steps, step)
    finally:
        steps.close()
        run(close())


async def iterate_async(steps: Steps, close: Callable[[], Steps]) -> AsyncIterator[Any]:
    """Do as `iterate`, and await what is to be awaited.

    A reader that stops early closes the generator, which closes the streams behind it.
    """
    resume, value = steps.send, None
    try:
        while True:
            try:
                step = resume(value)
            except StopIteration:
                return
            if isinstance(step, StreamValue):
                yield step.value
                resume, value = steps.send, None
            else:
                resume, value = await _perform_async(steps, step)
    finally:
        steps.close()
        await run_async(close())


def _perform(steps: Steps, step: Any) -> tuple[Callable[[Any], Any], Any]:
    """Call a step. Returns how to go on: with its value, or with its error."""
    try:
        return steps.send, step()
    except BaseException as error:  # noqa: BLE001 - it is raised in the steps
        return steps.throw, error


async def _perform_async(steps: Steps, step: Any) -> tuple[Callable[[Any], Any], Any]:
    try:
        value = step()
        if inspect.isawaitable(value):
            value = await value
    except BaseException as error:  # noqa: BLE001 - it is raised in the steps
        return steps.throw, error
    return steps.send, value
