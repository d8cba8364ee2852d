"""The page across all sessions: what they cost by day, client, project, model and user, and what to do."""

from __future__ import annotations

import time
from collections.abc import Mapping

import msgspec

from lamina.errors import BadInput
from lamina.inspector.views import Inspector, Json
from lamina.replay.across import summarise_across
from lamina.replay.groups import NOT_NAMED
from lamina.replay.session_places import SessionFigures

FILTERS = ("client", "project", "model", "user")

_SECONDS_OF_DAY = 86_400


def show_across(inspector: Inspector, query: Mapping[str, str]) -> Json:
    """All sessions, or those of the last `days`, of a client, a project, a model or a user."""
    figures = inspector.figures.collect(inspector.sessions)
    since = _read_since(query)
    chosen = [each for each in figures if _is_chosen(each, query, since)]
    ids = {each.id for each in chosen}
    replays = []
    for replay, its_figures in inspector.figures.replayed():
        if its_figures.id in ids:
            replays.append(replay)
    answer: Json = msgspec.to_builtins(summarise_across(chosen, replays=replays))
    answer["of"] = len(figures)
    answer["problems"] = len(inspector.sessions.problems())
    return answer


def _read_since(query: Mapping[str, str]) -> float | None:
    days = query.get("days", "")
    if not days:
        return None
    if not days.isascii() or not days.isdigit():
        raise BadInput(f"days is {days!r}", place="days", hint="give a whole number of days")
    return time.time() - int(days) * _SECONDS_OF_DAY


def _is_chosen(figures: SessionFigures, query: Mapping[str, str], since: float | None) -> bool:
    """Whether a session began in the days that are asked for, and is of the client that is asked for, say."""
    reported = figures.reported
    if since is not None and (reported.began is None or reported.began < since):
        return False
    values = {
        "client": reported.client or reported.source,
        "project": reported.project,
        "model": reported.model,
        "user": reported.user,
    }
    for name in FILTERS:
        word = query.get(name, "")
        if word and word != (values[name] or NOT_NAMED):
            return False
    return True
