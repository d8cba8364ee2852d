"""The session of `lamina demo` under each policy, for its picture and the average that it prints."""

from __future__ import annotations

from bench.lab.runs import replay
from bench.lab.values import LabAccount
from lamina.caches import rules_for
from lamina.cli.demo import CHAT, make_session
from lamina.cli.recording import MODEL
from lamina.costs import Trace

POLICIES = ("none", "drop_oldest", "sliding", "lamina")


def play_demo(seed: int, window: int) -> LabAccount:
    session = make_session(seed)
    trace = Trace(
        id=f"made up, seed {seed}",
        place="lamina demo",
        dialect=CHAT,
        source="demo",
        model=MODEL,
        items=session["messages"],
        head={"tools": session["tools"]},
    )
    rules = rules_for(MODEL, dialect=CHAT).name
    return replay([trace], policies=POLICIES, windows=[window], rules=[rules], points=True)
