"""The policy of the user's settings, with the line of what is wrong in it."""

from __future__ import annotations

from collections.abc import Mapping

from lamina.errors import BadInput
from lamina.fitting.policy import Policy, load_policy
from lamina.settings import POLICY, Settings, find_error_line, find_settings_file


def load_user_policy(settings: Settings, environment: Mapping[str, str] | None = None) -> Policy:
    """The policy of the settings. `environment` is where these came from, if not from a program."""
    try:
        return load_policy(settings.policy)
    except BadInput as error:
        place = ""
        if environment is not None:
            place = _find_place(environment, error.problem)
        raise BadInput(error.problem, place=place or error.place, hint=error.hint) from None


def _find_place(environment: Mapping[str, str], problem: str) -> str:
    """The line of the settings file that is wrong; "" without one."""
    file = find_settings_file(None, environment)
    try:
        text = file.read_text("utf-8")
    except OSError:
        return ""
    return f"{file}:{find_error_line(text, problem, table=POLICY) or 1}"
