"""The policy of the user's settings, with the place of what is wrong in it: a line, or a variable."""

from __future__ import annotations

from collections.abc import Mapping

from lamina.errors import BadInput
from lamina.fitting.policy import Policy, load_policy
from lamina.settings import POLICY, Settings, find_error_line, find_settings_file, variable_of


def load_user_policy(settings: Settings, environment: Mapping[str, str] | None = None) -> Policy:
    """The policy of the settings. `environment` is where these came from, if not from a program."""
    try:
        return load_policy(settings.policy)
    except BadInput as error:
        place = ""
        if environment is not None:
            place = _find_place(settings, environment, error.problem)
        raise BadInput(error.problem, place=place or error.place, hint=error.hint) from None


def _find_place(settings: Settings, environment: Mapping[str, str], problem: str) -> str:
    """The variable whose value alone is wrong, or the line of the file; "" if neither is found."""
    for name, value in settings.policy.items():
        variable = variable_of(f"{POLICY}.{name}")
        if environment.get(variable) and not _is_valid({name: value}):
            return f"${variable}"
    file = find_settings_file(None, environment)
    try:
        text = file.read_text("utf-8")
    except OSError:
        return ""
    return f"{file}:{find_error_line(text, problem, table=POLICY) or 1}"


def _is_valid(fields: Mapping[str, object]) -> bool:
    try:
        load_policy(fields)
    except BadInput:
        return False
    return True
