"""Handles Ctrl-C in a chat: it ends what is under way, and never the program."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Iterator

import anyio


class Interrupts:
    """State: what is under way. If nothing is, Ctrl-C calls `idle`, which draws the prompt again."""

    def __init__(self, idle: Callable[[], None]) -> None:
        self._scope: anyio.CancelScope | None = None
        self._idle = idle

    @contextlib.contextmanager
    def listen(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        try:
            loop.add_signal_handler(signal.SIGINT, self.stop)
        except NotImplementedError:  # some systems: there Ctrl-C ends the chat, and what was said is kept
            yield
            return
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    def stop(self) -> None:
        if self._scope is None:
            self._idle()
        else:
            self._scope.cancel()

    async def run(self, action: Awaitable[None]) -> bool:
        """Run what Ctrl-C interrupts; whether it came to its end."""
        with anyio.CancelScope() as scope:
            self._scope = scope
            try:
                await action
            finally:
                self._scope = None
        return not scope.cancelled_caught
