"""Loads the rules that come with lamina, and rules from a file of the user.

Each rule set is one TOML file in this folder, dated and with its sources. Nothing here decides what a rule
means, and nothing is fetched.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec

from lamina.caches.values import UNKNOWN, CacheRules
from lamina.core.text.characters import lower_ascii
from lamina.errors import BadInput
from lamina.models.names import plain_name


@lru_cache(maxsize=256)
def rules_for(name_or_model: str, *, dialect: str = "") -> CacheRules:
    """The rules of this name, else those of a model's cache, else the rules named `unknown`.

    A dialect that only one kind of server speaks decides alone. Any other dialect decides only if no rules
    list the model.

    `rules_for("claude-sonnet-4-5")` are Anthropic's, and so are `rules_for("x", dialect="anthropic")`.
    """
    rules_by_name = all_rules()
    if name_or_model in rules_by_name:
        return rules_by_name[name_or_model]
    of_dialect = [rules for rules in rules_by_name.values() if dialect in rules.dialects]
    # a server of one's own serves any model, so its rules list none
    for rules in of_dialect:
        if not rules.models:
            return rules
    listing_rules = _find_by_model(name_or_model)
    if listing_rules is not None:
        return listing_rules
    if of_dialect:
        return of_dialect[0]
    return rules_by_name[UNKNOWN]


def _find_by_model(model: str) -> CacheRules | None:
    """The rules that list the longest beginning of a model's name, as it is written or as a plain name.

    `gpt-5.6-mini` is of the rules that list `gpt-5.6`, though others list `gpt-5`.
    """
    lower_name = lower_ascii(model)
    plain_model = plain_name(model)
    best = None
    longest = ""
    for beginning, rules in _list_beginnings():
        if len(beginning) <= len(longest):
            continue
        if lower_name.startswith(beginning) or plain_model.startswith(beginning):
            longest = beginning
            best = rules
    return best


def _list_beginnings() -> Iterator[tuple[str, CacheRules]]:
    """Each beginning of a model's name that rules list, as it is written there and as a plain name."""
    for rules in all_rules().values():
        for listed_model in rules.models:
            yield listed_model, rules
            yield plain_name(listed_model), rules


@cache
def all_rules() -> dict[str, CacheRules]:
    """Every rule set that comes with lamina, by name."""
    rules_by_name = {}
    for file in sorted(files(__package__).iterdir(), key=lambda file: file.name):
        if file.name.endswith(".toml"):
            rules = _parse_rules(file.read_text("utf-8"), file.name)
            rules_by_name[rules.name] = rules
    return rules_by_name


def load_rules(path: str | PathLike[str]) -> CacheRules:
    """Rules from a TOML file. The files in this folder are examples."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(str(error), place=str(path), hint="give a readable TOML file in UTF-8") from None
    return _parse_rules(text, str(path))


def _parse_rules(text: str, place: str) -> CacheRules:
    """Rules from the text of a TOML file. Raises BadInput if it is none, or has an unknown field."""
    try:
        plain: dict[str, Any] = tomllib.loads(text)
        return msgspec.convert(plain, CacheRules)
    except msgspec.ValidationError as error:
        raise BadInput(
            str(error), place=place, hint="its fields are those of lamina.caches.CacheRules"
        ) from None
    except (ValueError, RecursionError) as error:  # not TOML, or nested too deeply
        raise BadInput(str(error), place=place, hint="it must be TOML") from None
