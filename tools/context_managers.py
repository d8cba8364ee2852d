"""Runs the suite for context managers over lamina and over every peer, and prints who passes what.

    python -m tools.context_managers [ENVIRONMENT...]    (all of them unless told; after `make peers`)

With --why it also says why a promise is not met. A peer that keeps its own edits between calls gets no case
about restarts: its framework's own state decides that. One that gives the model a way back, in its own agent,
gets no case about what is lost: the way back is not part of the trimmer that runs here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import Any

import lamina
from bench.peers.catalogue import PEERS, version
from bench.peers.policies import peer_policy
from lamina.adapters.bridge import ContextFitter
from lamina.core.values import Budget
from lamina.testing.context import (
    PROMISES,
    ContextSizes,
    ManagedContext,
    Message,
    StartContext,
    context_manager,
    nothing_lost,
    stable_after_a_restart,
)

HANDLE = re.compile(r"recall(?:\(\"|=\")([a-z0-9-]+)")


class LaminaContext:
    """lamina through the bridge that adapters use."""

    def __init__(self, sizes: ContextSizes, state: Any) -> None:
        budget = Budget(window=sizes.window, reserve=sizes.window - sizes.room)
        self._fitter = ContextFitter(model="gpt-5", budget=budget)
        self._ledger: dict[str, Any] | None = state
        self._history: Sequence[Message] = ()

    def fit(self, request: Message) -> Sequence[Message]:
        head = {name: value for name, value in request.items() if name != "messages"}
        self._history = request["messages"]
        fitted = self._fitter.fit(self._history, head=head, ledger=self._ledger, conversation="one")
        self._ledger = fitted.ledger
        return fitted.messages

    def reach(self, messages: Sequence[Message]) -> str:
        """Call `recall` for every handle, from the first character to the last."""
        texts: list[str] = []
        for key in HANDLE.findall(repr([message.get("content") for message in messages])):
            start = 0
            while True:
                piece = self._fitter.answer(self._history, {"key": key, "start": start}, ledger=self._ledger)
                texts.append(piece)
                more = re.match(r"\[characters [\d,]+ to [\d,]+ of [\d,]+; go on with start=(\d+)", piece)
                if more is None:
                    break
                start = int(more[1])
        return "\n".join(texts)

    def dump(self) -> Any:
        return self._ledger


class PeerContext:
    """Another library, in its own process."""

    def __init__(self, ask: Callable[[Message], Message]) -> None:
        self._ask = ask

    def fit(self, request: Message) -> Sequence[Message]:
        messages: Sequence[Message] = self._ask(request)["messages"]
        return messages

    def reach(self, messages: Sequence[Message]) -> str:  # noqa: ARG002 - no peer here answers a tool
        return ""

    def dump(self) -> Any:
        return None


def main(arguments: list[str]) -> int:
    names = [argument for argument in arguments if not argument.startswith("--")]
    says_why = "--why" in arguments
    titles = [promise.__name__.replace("_", " ") for promise in PROMISES]
    print("| context manager | version |", " | ".join(titles), "|")
    print("|---|---|" + ":-:|" * len(titles))
    if not names:
        print_row("lamina", lamina.__version__, LaminaContext, skipped=(), says_why=says_why)
    for peer in PEERS.values():
        if names and peer.environment not in names:
            continue
        policy = peer_policy(peer.name, limit=60)
        skipped: set[Any] = set()
        if peer.stateful:
            skipped.add(stable_after_a_restart)
        if peer.recalls:
            skipped.add(nothing_lost)
        try:
            print_row(peer.title, version(peer), start_peer(policy), skipped=skipped, says_why=says_why)
        finally:
            policy.close()
    print(f"\n{datetime.now(UTC):%Y-%m-%d}")
    return 0


def start_peer(policy: Any) -> StartContext:
    def start(sizes: ContextSizes, _: Any) -> ManagedContext:
        return PeerContext(policy.start(sizes))

    return start


def print_row(
    name: str, released: str, start: StartContext, *, skipped: Collection[Any], says_why: bool
) -> None:
    cells: list[str] = []
    reasons: list[str] = []
    for case in context_manager(name, start):
        if case.run.func in skipped:  # type: ignore[attr-defined]
            cells.append("–")
            continue
        try:
            case()
        except Exception as error:  # noqa: BLE001 - whatever a library raises is a promise not kept
            cells.append("no")
            reasons.append(f"{case.name}: {type(error).__name__} {error}")
        else:
            cells.append("yes")
    print(f"| {name} | {released} |", " | ".join(cells), "|", flush=True)
    if says_why:
        for reason in reasons:
            print(f"    {reason:.200}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
