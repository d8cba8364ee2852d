"""The rules that come with lamina, and rules from a file of one's own.

Each rule set is one TOML file beside this one, dated and with its sources. Nothing here decides what a rule
means, and nothing is fetched.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec

from lamina.caches.values import CacheRules
from lamina.core.text.characters import lower_ascii
from lamina.errors import BadInput
from lamina.models.facts import plain_name

UNKNOWN = "unknown"


def rules_for(name_or_model: str, *, dialect: str = "") -> CacheRules:
    """The rules of this name, else those of a model's cache, else `unknown`, which says so.

    A dialect that only one kind of server speaks decides alone; any other helps where the model does not.
    """
    known = all_rules()
    if name_or_model in known:
        return known[name_or_model]
    for rules in known.values():
        if dialect in rules.dialects and not rules.models:
            return rules
    by_model = max(known.values(), key=lambda rules: _agreeing(rules, name_or_model))
    if _agreeing(by_model, name_or_model):
        return by_model
    return next((rules for rules in known.values() if dialect in rules.dialects), known[UNKNOWN])


@cache
def all_rules() -> dict[str, CacheRules]:
    """Every rule set that comes with lamina, by name."""
    found = sorted(files(__package__).iterdir(), key=lambda file: file.name)
    read = [_rules(file.read_text("utf-8"), file.name) for file in found if file.name.endswith(".toml")]
    return {rules.name: rules for rules in read}


def load_rules(path: str | PathLike[str]) -> CacheRules:
    """Rules from a TOML file; the files of lamina show how one reads."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(str(error), place=str(path), hint="give a readable TOML file in UTF-8") from None
    return _rules(text, str(path))


def _rules(text: str, place: str) -> CacheRules:
    try:
        plain: dict[str, Any] = tomllib.loads(text)
        return msgspec.convert(plain, CacheRules)
    except msgspec.ValidationError as error:
        raise BadInput(str(error), place=place, hint="its fields are those of lamina.caches.Rules") from None
    except (ValueError, RecursionError) as error:  # no TOML, or nested too deeply
        raise BadInput(str(error), place=place, hint="it must be TOML") from None


def _agreeing(rules: CacheRules, name: str) -> int:
    """How many characters of a model's name, as written or plain, these rules know."""
    forms = (lower_ascii(name), plain_name(name))
    return max(
        (
            len(start)
            for model in rules.models
            for start in {model, plain_name(model)}
            if any(form.startswith(start) for form in forms)
        ),
        default=0,
    )
