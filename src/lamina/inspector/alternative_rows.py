"""Replays one session under another policy, window, model or cache, for `alternatives`."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import msgspec

from lamina.caches.rules import find_named_rules
from lamina.errors import BadInput
from lamina.inspector.built_values import read_whole
from lamina.inspector.last_used import LastUsed
from lamina.inspector.recorded_sessions import RecordedSession
from lamina.models.facts import model_or_none
from lamina.replay.account_sums import OWN_RULES, OWN_WINDOW
from lamina.replay.policies import POLICIES, find_policy
from lamina.replay.runs import ReplayOptions, replay_trace
from lamina.replay.values import ReplayOutcome

UNTOUCHED = "none"

_MOST_ROWS = 400
"""Rows that stay in memory, of all sessions together."""

_KEEP_ALL = 'a store with keep = "all" has them'


class Alternative(msgspec.Struct, frozen=True, kw_only=True):
    """The setting of one row. Window 0, and "" for the rest, are those of the session itself."""

    policy: str = UNTOUCHED
    window: int = 0
    model: str = ""
    rules: str = ""


class AlternativeRows:
    """State: rows that were computed. One that was asked for again is not computed again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: LastUsed[tuple[str, int, Alternative], ReplayOutcome] = LastUsed(_MOST_ROWS)

    def find(self, session: RecordedSession, alternative: Alternative) -> ReplayOutcome:
        key = (session.summary.id, session.version, alternative)
        with self._lock:
            outcome = self._rows.get(key)
        if outcome is None:
            # Without the lock: the page asks for several rows at once, and each may take seconds.
            outcome = evaluate(session, alternative)
            with self._lock:
                self._rows.add(key, outcome)
        return outcome


def read_alternative(query: Mapping[str, str]) -> Alternative:
    """A setting from the words of an address. Raises BadInput for a word that nobody knows."""
    policy = query.get("policy") or UNTOUCHED
    if ":" in policy:  # a name with a colon would import a module that the address chose
        raise BadInput(repr(policy), place="policy", hint=f"use one of {', '.join(POLICIES)}")
    find_policy(policy)
    rules = query.get("rules", "")
    if rules:
        find_named_rules(rules, "rules")
    model = query.get("model", "")
    if model and model_or_none(model) is None:
        raise BadInput(f"there is no model {model!r}", place="model", hint="see lamina's table of models")
    return Alternative(
        policy=policy,
        window=read_whole(query, "window", hint="give a whole number of tokens") or 0,
        model=model,
        rules=rules,
    )


def evaluate(session: RecordedSession, alternative: Alternative) -> ReplayOutcome:
    """One row: the session sent again under a setting, to a simulated cache."""
    conversation = session.conversation
    if not conversation.calls:
        raise BadInput(
            "the texts of this session are not kept, so it cannot be sent again under other settings",
            place="session",
            hint=_KEEP_ALL,
        )
    window = alternative.window or session.window
    if alternative.model and not alternative.window:
        window = OWN_WINDOW  # that of the other model
    options = ReplayOptions(
        policies=(alternative.policy,),
        windows=(window,),
        rules=(alternative.rules or OWN_RULES,),
        model=alternative.model,
        fill_head=True,
    )
    replayed = replay_trace(conversation.trace, options)
    if replayed.damaged is not None:
        raise BadInput(replayed.damaged.reason, place="session", hint="it cannot be sent again")
    return replayed.outcomes[0]
