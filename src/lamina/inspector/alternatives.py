"""Shows a session under other settings ("what if"), one row of a table at a time.

The first row is what was reported, and all others are simulated. The page asks for one row after the other:
each is there as soon as it is computed, and changing one setting computes one row.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from lamina.caches import all_rules, rules_for
from lamina.inspector.alternative_rows import read_alternative
from lamina.inspector.session_figures import measure_session
from lamina.inspector.views import Inspector, Json
from lamina.models.facts import listed_models, model_or_none
from lamina.replay.account_sums import share_of
from lamina.replay.policies import POLICIES

WINDOWS = (32_000, 64_000, 128_000)
"""Windows that the page offers besides that of the session's model."""


def show_alternative(inspector: Inspector, session_id: str, query: Mapping[str, str]) -> Json:
    """One row of the table."""
    session = inspector.sessions.get(session_id)
    alternative = read_alternative(query)
    outcome = inspector.alternatives.find(session, alternative)
    dollars = outcome.dollars
    if dollars is not None:
        dollars += outcome.recall_dollars
    return {
        **msgspec.to_builtins(outcome),
        "setting": msgspec.to_builtins(alternative),
        "dollars": dollars,
        "cached": share_of(outcome.read, outcome.sent),
        "refused": outcome.refused,
    }


def show_choices(inspector: Inspector, session_id: str) -> Json:
    """What was reported of a session, and the settings that a page offers for it."""
    session = inspector.sessions.get(session_id)
    trace = session.conversation.trace
    rules = rules_for(trace.model, dialect=trace.dialect)
    figures = measure_session(session)
    answer: Json = {
        "reported": None,
        "model": trace.model,
        "window": session.window,
        "rules": rules.name,
        "all_rules": sorted(all_rules()),
        "policies": POLICIES,
        "windows": [window for window in WINDOWS if window < session.window],
        "models": _list_models(trace.model),
        "under_lamina": session.sent is not None,
        "can_build": bool(session.conversation.calls),
    }
    if figures is not None and figures.reported.sent:
        reported = figures.reported
        answer["reported"] = {
            "calls": reported.calls,
            "dollars": reported.dollars,
            "sent": reported.sent,
            "read": reported.read,
            "cached": reported.read / reported.sent,
            "cuts": figures.cuts,
            "refused": 0,
        }
    return answer


def _list_models(name: str) -> list[str]:
    """Models of the same vendor, as the table of models has them; all models if the vendor is not known."""
    own = model_or_none(name)
    listed = listed_models()
    if own is None:
        return sorted(listed)
    vendor = own.name.partition("-")[0]
    return sorted(each for each in listed if each.startswith(vendor))
