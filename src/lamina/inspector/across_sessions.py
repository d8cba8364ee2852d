"""The page across all sessions: their cost by day, client, project, model and user, and what was lost."""

from __future__ import annotations

import time
from collections.abc import Mapping

import msgspec

from lamina.inspector.built_values import read_whole
from lamina.inspector.views import Inspector, Json
from lamina.replay.across import SessionFigures, summarise_across
from lamina.replay.headline import NOT_NAMED

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
    days = read_whole(query, "days", hint="give a whole number of days")
    if days is None:
        return None
    return time.time() - days * _SECONDS_OF_DAY


def _is_chosen(figures: SessionFigures, query: Mapping[str, str], since: float | None) -> bool:
    """Whether a session began in the days that are asked for, and is of the client that is asked for, say."""
    reported = figures.reported
    if since is not None and (reported.began is None or reported.began < since):
        return False
    names = {
        "client": reported.client or reported.source,
        "project": reported.project,
        "model": reported.model,
        "user": reported.user,
    }
    for filter_name, name in names.items():
        word = query.get(filter_name, "")
        if word and word != (name or NOT_NAMED):
            return False
    return True
