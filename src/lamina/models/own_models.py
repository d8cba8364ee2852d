"""The user's own models: a TOML file that adds to the table, or corrects it.

[models.acme-large]
like = "gpt-5"
window = 64000
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import msgspec

from lamina.core.bound_thinking import Binding
from lamina.core.text.estimate import FAMILIES
from lamina.errors import BadInput
from lamina.models.names import key_of
from lamina.models.prices import OffPeak, Prices, Tier, WholeNumber
from lamina.models.table import Model, Models, find_model, table


class _OwnModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a user may say of a model. `like` names one of the table that has the rest."""

    like: str | None = None
    window: Annotated[int, msgspec.Meta(gt=0)] | None = None
    total: WholeNumber | None = None
    output: WholeNumber | None = None
    family: str | None = None
    binding: Binding | None = None
    minimum: WholeNumber | None = None
    prices: Prices | None = None
    tiers: tuple[Tier, ...] | None = None
    off_peak: OffPeak | None = None


class _ModelsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    models: dict[str, _OwnModel]


def load_models(path: str | Path) -> Models:
    """The models of a TOML file: one table `[models.NAME]` each, with the fields of `Model`.

    A model that is in the table, or `like` one of it, needs only the fields that differ. New `prices` replace
    all prices, tiers and quiet hours.
    """
    place = str(path)
    try:
        own_models = msgspec.toml.decode(Path(path).read_bytes(), type=_ModelsFile).models
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", place=place, hint="check the path") from None
    except (msgspec.DecodeError, ValueError, RecursionError) as error:  # no TOML, or not of this shape
        raise BadInput(str(error), place=place, hint="see Model in docs/models.md for the fields") from None
    models: dict[str, Model] = {}
    for name, own_model in own_models.items():
        models[key_of(name)] = _complete_model(name, own_model, place=f"{place}: models.{name}")
    return MappingProxyType(models)


def _complete_model(name: str, own_model: _OwnModel, *, place: str) -> Model:
    """The model with everything that the user does not say."""
    family = own_model.family
    if family is not None and family not in FAMILIES:
        raise BadInput(f"family is {family!r}", place=place, hint=f"use one of {', '.join(FAMILIES)}")
    model = _find_base(name, own_model, place=place)
    if own_model.prices is not None:
        model = msgspec.structs.replace(model, tiers=(), off_peak=None)
    if own_model.window is not None:
        model = msgspec.structs.replace(model, total=0)
    model = msgspec.structs.replace(model, **_own_fields(own_model))
    rising_tiers = sorted(model.tiers, key=lambda tier: tier.above)
    return msgspec.structs.replace(model, tiers=tuple(rising_tiers))


def _find_base(name: str, own_model: _OwnModel, *, place: str) -> Model:
    """What the user's model begins as: the one that it is like, else the one of its name, else a new one."""
    if own_model.like is not None:
        return msgspec.structs.replace(find_model(own_model.like, table()), name=name, listed="")
    row = table().get(key_of(name))
    if row is not None:
        return row
    if own_model.window is None:
        hint = "give its window, or a model that it is like"
        raise BadInput("the table has no such model", place=place, hint=hint)
    return Model(name=name, window=0)


def _own_fields(own_model: _OwnModel) -> dict[str, Any]:
    """The fields of a `Model` that the user gives."""
    fields: dict[str, Any] = {}
    for field in own_model.__struct_fields__:
        value = getattr(own_model, field)
        if field != "like" and value is not None:
            fields[field] = value
    return fields
