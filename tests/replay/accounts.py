"""Accounts made up from a seed, for tests of what shows them."""

from __future__ import annotations

from random import Random

from lamina.conversations.lost_caches import LostCache
from lamina.replay import ReplayAccount, ReplayOutcome, UnreadableLine
from lamina.replay.values import Reported

HOSTILE = '<script>alert("x")</script>&amp;\'"><img src=x onerror=alert(1)>'
POLICIES = ("none", "drop_oldest", "sliding", "lamina")


def account(
    seed: int = 1, *, sessions: int = 4, calls: int = 30, windows: tuple[int, ...] = (32_000,)
) -> ReplayAccount:
    """Every session under every policy; the first session, model, reason and place are hostile."""
    random = Random(seed)  # noqa: S311 - figures, not secrets
    names = [HOSTILE, *(f"session-{number}" for number in range(1, sessions))][:sessions]
    outcomes = [
        outcome(random, name, policy, window, calls)
        for window in windows
        for name in names
        for policy in POLICIES
    ]
    return ReplayAccount(
        outcomes=tuple(outcomes),
        reported=tuple(reported(random, name, calls) for name in names),
        damaged=(UnreadableLine(place=f"{HOSTILE}.jsonl:3", reason="not JSON: <b>"),),
        as_of="2026-11-09",
    )


def outcome(random: Random, trace: str, policy: str, window: int, calls: int) -> ReplayOutcome:
    sent, needed = sum(2_500 + 300 * call for call in range(calls)), random.randint(50, 90)
    spent = 0.65 * sent
    visible = random.randint(20, needed)
    return ReplayOutcome(
        trace=trace, source="made up", policy=policy, window=window, rules="anthropic", calls=calls,
        cuts=random.randint(0, 5), broken=random.randint(0, 3),
        over=3 if policy == "drop_oldest" else 0, sent=sent, read=sent // 2, uncached=sent - sent // 2,
        equivalents=spent, dollars=spent / 200_000, needed=needed, visible=visible,
        recallable=random.randint(visible, needed), recalls=3, recall_equivalents=random.uniform(0, 900),
        recall_dollars=random.uniform(0, 0.01),
        seconds=0.01 * calls,
    )  # fmt: skip


def reported(random: Random, trace: str, calls: int) -> Reported:
    lost = (
        LostCache(
            call=4, tokens=random.randint(1, 9_000), why="idle for 7 minutes, past the lifetime", dollars=0.02
        ),
        LostCache(call=9, tokens=700, why=HOSTILE),
    )
    model = f"model {HOSTILE}" if trace == HOSTILE else "claude-opus-5-5"
    return Reported(
        trace=trace, source="made up", model=model, calls=calls,
        read=random.randint(180_000, 190_000), written=9_000, uncached=random.randint(0, 5_000), output=4_000,
        dollars=random.uniform(0.6, 0.7), lost=lost if random.random() < 0.7 else (),
    )  # fmt: skip
