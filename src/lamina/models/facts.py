"""Facts per model: how much it reads and writes, what that costs, its tokenizer, if its thinking is bound.

Facts come from two tables. `models.json` in this folder is generated from litellm's by `tools/models.py` with
corrections of our own, and is of the day `AS_OF`. If a provider limits the input below the window that it
advertises, `window` is that limit; if it names no limit for the output, `output` is 0. Hosts of open models
differ: the table has what a common one gives, and no prices.

The user's own file, in TOML, adds to that table, or corrects it:

    [models.acme-large]
    like = "gpt-5"
    window = 64000

    [models."acme-*"]
    window = 32000

Nobody's table knows the window of a model that somebody serves at home: it is what the server was started
with. `read_served_windows` reads it from the answer to `GET /v1/models`. vLLM and SGLang list it as
`max_model_len`, llama.cpp as `n_ctx` (in `meta` or beside it), LM Studio as `loaded_context_length`, hosts of
many models as `context_length` or `context_window`.

This file knows no request and no clock.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import msgspec

from lamina.core.bound_thinking import Binding
from lamina.core.text.estimate import FAMILIES
from lamina.core.values import Budget
from lamina.errors import BadInput
from lamina.models.names import (
    NO_VERSION,
    TUNED,
    Version,
    beginnings,
    is_boundary,
    key_of,
    name_provider,
    own_name,
    read_tuned_base,
    shorten_family,
    split_version,
    tail_of,
)

AS_OF = "2026-11-19"
"""The day of the table: prices and limits are those of then."""

VARIABLE = "LAMINA_MODELS"
"""Names the user's own file of models, in the environment."""

MILLION = 1_000_000
"""The window that `[1m]` after a name asks for."""

WholeNumber = Annotated[int, msgspec.Meta(ge=0)]
Price = Annotated[float, msgspec.Meta(ge=0)]

Tokens = Annotated[int, msgspec.Meta(gt=0)]


class Prices(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """USD for a million tokens; None where the source names no price of its own.

    `input` is for what a cache neither gave nor took, `read` for what it gave, `write` for what it took,
    `write_1h` for what it took to keep longer than its shortest lifetime.
    """

    input: Price | None = None
    output: Price | None = None
    read: Price | None = None
    write: Price | None = None
    write_1h: Price | None = None


class Tier(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The prices of a whole request whose input, cached or not, is longer than `above` tokens."""

    above: WholeNumber
    prices: Prices


class Hours(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A span of the days `days` (1 is Monday), from minute `start` to before minute `end`, in UTC."""

    days: tuple[Annotated[int, msgspec.Meta(ge=1, le=7)], ...]
    start: WholeNumber
    end: WholeNumber

    def contain(self, moment: datetime) -> bool:
        """Whether a moment in UTC is within this span."""
        minute = moment.hour * 60 + moment.minute
        return moment.isoweekday() in self.days and self.start <= minute < self.end


class OffPeak(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The prices at quiet hours."""

    prices: Prices
    hours: tuple[Hours, ...]


class Model(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One model. `family` names the tokenizer that the estimate for it is fitted to.

    `window` is what the input may take. `total` is what input and output may take together, if that is
    more: then the output does not make the input shorter. 0 means that both share the window. `minimum` is
    the shortest prefix in tokens that its provider caches, None if that is unknown. `tiers` are the
    prices of longer requests, in rising order. `listed` is the host's own name for the model if this is
    what that host gives and asks for, else empty.

    `like` is the model whose tokens and cache this one is taken to have, "" if its own name says them.
    `inferred`: no table has this name, so its limits are that model's too, and its prices are not known.
    """

    name: str
    window: Tokens
    total: WholeNumber = 0
    output: WholeNumber = 0
    family: str = "o200k"
    binding: Binding = "none"
    minimum: WholeNumber | None = None
    prices: Prices = Prices()
    tiers: tuple[Tier, ...] = ()
    off_peak: OffPeak | None = None
    listed: str = ""
    like: str = ""
    inferred: bool = False

    def describe_inferred(self, *, window: bool = True) -> str:
        """What of it is another model's, with the `window` or without it, in words; "" if nothing is."""
        if not self.inferred:
            return ""
        what = "tokens and cache"
        if window:
            what = f"window, {what}"
        return f"{what} as {self.like}'s, since {self.name} is on no list; prices not known"

    @property
    def budget(self) -> Budget:
        """What a request to it may take. How much of it the answer needs is for the request to say."""
        if self.total > self.window:
            return Budget(window=self.total, input=self.window)
        return Budget(window=self.window)


Models = Mapping[str, Model]
"""Models by the names that they are found by."""


def model(name: str, *, own: Models | None = None, dialect: str = "") -> Model:
    """The facts of a model, by its name as any provider writes it: with its path, region, or date.

    A name that no table has gets those of the nearest model (`Model.inferred`): the newest of its family,
    else of its provider, which its path or the `dialect` names. If there is none, this raises `BadInput`.

    `own` are the caller's models, which win over the table; None takes those of the file that the
    environment variable LAMINA_MODELS names, read once.
    """
    nearest = model_or_none(name, own=own, dialect=dialect)
    if nearest is None:
        raise _unknown_model(name)
    return nearest


def model_or_none(name: str, *, own: Models | None = None, dialect: str = "") -> Model | None:
    """What `model` gives, or None if it would raise `BadInput`."""
    if own is None:
        return _find_with_file(name, os.environ.get(VARIABLE, ""), dialect)
    return _find_nearest(name, (own, listed_models()), dialect)


def nearest_name(name: str, *, dialect: str = "") -> str:
    """The name of the model whose tokens and cache this one is taken to have; its own if it is known."""
    row = model_or_none(name, dialect=dialect)
    if row is None or not row.like:
        return name
    return row.like


def price_of(model: Model, *, tokens: int = 0, at: datetime | None = None) -> Prices:
    """The prices of a request with `tokens` of input, cached or not, sent at the moment `at`.

    Without a moment they are those of the busy hours, which are the higher ones.
    """
    if at is not None:
        if at.tzinfo is None:
            raise BadInput(f"{at!r} has no time zone", place="at", hint="pass datetime(..., tzinfo=UTC)")
        moment = at.astimezone(UTC)
        off_peak = model.off_peak
        if off_peak is not None and any(hours.contain(moment) for hours in off_peak.hours):
            return off_peak.prices
    prices = model.prices
    for tier in model.tiers:
        if tokens > tier.above:
            prices = tier.prices
    return prices


@lru_cache(maxsize=256)
def _find_with_file(name: str, path: str, dialect: str) -> Model | None:
    """The model of this name in the user's file and the table; `path` is "" if there is no file."""
    if not path:
        return _find_nearest(name, (listed_models(),), dialect)
    return _find_nearest(name, (_load_once(path), listed_models()), dialect)


def _find_nearest(name: str, among: Sequence[Models], dialect: str) -> Model | None:
    listed = _find_listed(name, among)
    return listed or _find_own_family(name, among) or infer_model(name, *among, dialect=dialect)


def _find_own_family(name: str, among: Sequence[Models]) -> Model | None:
    """The model of the longest own name that ends with `*` and that this name begins with."""
    key = key_of(name)
    keys = [key[start:] for start in beginnings(key)]
    families = {
        pattern: row
        for models in among
        for pattern, row in models.items()
        if pattern.endswith("*") and any(own_key.startswith(pattern[:-1]) for own_key in keys)
    }
    if not families:
        return None
    return msgspec.structs.replace(families[max(families, key=len)], name=own_name(name))


def infer_model(name: str, *among: Models, dialect: str = "") -> Model | None:
    """The facts of a model that these tables lack, as those of the nearest one; its prices are not known.

    `claude-opus-6` is taken for the newest Opus, `gpt-6-rosalind` for another GPT 6. Of a model whose name
    says nothing but its provider, or whose dialect alone does, nobody knows how new it is: the smallest
    window of the provider is the safe one.
    """
    key = key_of(name.removeprefix(TUNED)).replace("chatgpt", "gpt")
    row = _find_in_family([key[start:] for start in beginnings(key)], among)
    if row is None:
        provider = name_provider(name, dialect)
        rows = [row for _, _, row in _list_family(provider, among)]
        if not provider or not rows:
            return None
        row = min(rows, key=lambda row: row.window)
    nearest = msgspec.structs.replace(
        _remove_prices(row),
        name=own_name(name),
        like=row.like or row.listed or row.name,
        inferred=True,
        listed="",
    )
    if "[1m]" in name and nearest.window < MILLION:
        nearest = msgspec.structs.replace(nearest, window=MILLION, total=0)
    return nearest


def _find_in_family(keys: Sequence[str], among: Sequence[Models]) -> Model | None:
    """The newest model of a family that is not newer than the one that these keys name, else its oldest.

    If a family has none that is not newer, the one with a word less may: `gpt-#` after `gpt-#-rosalind`. How
    old a row without a version is, such as `gemini-flash-latest`, nobody knows. It comes first for a name
    that has no version either: `mistral-7b` for `mistral-7b-orca`.
    """
    oldest = None
    for key in keys:
        family, version = split_version(key)
        for shorter in shorten_family(family):
            members = _list_family(shorter, among)
            older = [
                member for member in members if version == NO_VERSION or NO_VERSION < member[1] <= version
            ]
            if older:
                if version == NO_VERSION:
                    older = [member for member in older if member[:2] == (shorter, NO_VERSION)] or older
                return max(older, key=lambda member: (member[1], member[0] == shorter, -member[2].window))[2]
            if members and oldest is None:
                oldest = min(
                    members, key=lambda member: (member[1] == NO_VERSION, member[1], member[2].window)
                )[2]
    return oldest


def _list_family(family: str, among: Sequence[Models]) -> list[tuple[str, Version, Model]]:
    """The rows of a family, or of one that goes on after it, each with its own family and version."""
    members = []
    for models in among:
        for key, row in models.items():
            own_family, version = split_version(key)
            if own_family == family or own_family.startswith((f"{family}-", f"{family}#")):
                members.append((own_family, version, row))
    return members


@lru_cache(maxsize=8)
def _load_once(path: str) -> Models:
    return load_models(path)


class _TableFile(msgspec.Struct, frozen=True):
    as_of: str
    models: tuple[Model, ...]


@cache
def listed_models() -> Models:
    """Every model of the generated table (docs/models.md), which is read when it is first needed."""
    data = Path(__file__).with_name("models.json").read_bytes()
    rows = msgspec.json.decode(data, type=_TableFile).models
    return MappingProxyType({key_of(row.listed or row.name): row for row in rows})


def find_model(name: str, *among: Models) -> Model:
    """The model of this name in these tables; raises `BadInput` if there is none.

    Of all rows that the name begins with, the one that says most of it decides; then the one with most of a
    vendor's or region's prefix; then the one of the first table. If what follows makes another model of the
    name, the name is unknown.
    """
    row = _find_listed(name, among)
    if row is None:
        raise _unknown_model(name)
    return row


def _find_listed(name: str, among: Sequence[Models]) -> Model | None:
    tuned_base = read_tuned_base(name)
    longest = _find_longest(tuned_base or key_of(name), among)
    if longest is not None:
        return _apply_tail(*longest)
    base_row = None
    if tuned_base:
        base_row = _find_listed(tuned_base.removeprefix(TUNED), among)
    if base_row is None:
        return None
    # A fine-tuned model that has no prices of its own has the limits of the one that it began as.
    return msgspec.structs.replace(_remove_prices(base_row), name=TUNED + base_row.name, listed="")


def _find_longest(key: str, among: Sequence[Models]) -> tuple[Model, str] | None:
    """The row that says most of a key, and what follows it in the key."""
    starts = beginnings(key)
    for end in range(len(key), 0, -1):
        if not is_boundary(key, end):
            continue
        for start in starts:
            for models in among:
                row = models.get(key[start:end])
                if row is not None:
                    return row, key[end:]
    return None


def _apply_tail(row: Model, rest: str) -> Model | None:
    """A row for a name that goes on after it; None if that makes another model of the name."""
    tail = tail_of(rest)
    if tail == "other":
        return None
    if tail == "unpriced":
        return _remove_prices(row)
    if tail == "wide" and row.window < MILLION:
        wide_tier = Tier(above=row.window, prices=Prices())  # no source says what the wider window costs
        return msgspec.structs.replace(row, window=MILLION, tiers=(*row.tiers, wide_tier))
    return row


def _remove_prices(row: Model) -> Model:
    return msgspec.structs.replace(row, prices=Prices(), tiers=(), off_peak=None)


def _unknown_model(name: str) -> BadInput:
    return BadInput(
        f"unknown model {name[:80]!r}",
        place="model",
        hint=f"give its context window in tokens: Budget(window=...), or a file of models in {VARIABLE}",
    )


def load_models(path: str | Path) -> Models:
    """The models of a TOML file: one table `[models.NAME]` each, with the fields of `Model`.

    A model that is in the table, or `like` one of it, needs only the fields that differ. New `prices` replace
    all prices, tiers and quiet hours. A name that ends with `*` is that of a family: of all models that begin
    so and that no table has.
    """
    place = str(path)
    try:
        tables = msgspec.toml.decode(Path(path).read_bytes(), type=_ModelsFile).models
        models = {key_of(name): _complete_model(name, table) for name, table in tables.items()}
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", place=place, hint="check the path") from None
    except BadInput as error:
        raise BadInput(error.problem, place=f"{place}: {error.place}", hint=error.hint) from None
    except (msgspec.DecodeError, ValueError, RecursionError) as error:  # no TOML, or not of this shape
        raise BadInput(str(error), place=place, hint="see Model in docs/models.md for the fields") from None
    return MappingProxyType(models)


class _ModelsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    models: dict[str, dict[str, Any]]


def _complete_model(name: str, table: Mapping[str, Any]) -> Model:
    """The model with everything that the user does not say."""
    base = _find_base(name, table)
    if "prices" in table:
        base = msgspec.structs.replace(base, tiers=(), off_peak=None)
    if "window" in table:
        base = msgspec.structs.replace(base, total=0)
    fields = {field: value for field, value in table.items() if field != "like"}
    model = msgspec.convert(msgspec.to_builtins(base) | fields, Model)
    if model.family not in FAMILIES:
        hint = f"use one of {', '.join(FAMILIES)}"
        raise BadInput(f"family is {model.family!r}", place=f"models.{name}", hint=hint)
    rising_tiers = sorted(model.tiers, key=lambda tier: tier.above)
    return msgspec.structs.replace(model, tiers=tuple(rising_tiers))


def _find_base(name: str, table: Mapping[str, Any]) -> Model:
    """What the user's model begins as: the one that it is like, else the one of its name, else a new one."""
    if "like" in table:
        like = find_model(str(table["like"]), listed_models())
        return msgspec.structs.replace(like, name=name, listed="", like=like.listed or like.name)
    row = listed_models().get(key_of(name))
    if row is not None:
        return row
    if "window" not in table:
        hint = "give its window, or a model that it is like"
        raise BadInput("the table has no such model", place=f"models.{name}", hint=hint)
    return Model(name=name, window=0)


class _Limits(msgspec.Struct):
    """How long a request may be, as servers call it."""

    loaded_context_length: Tokens | None = None
    max_model_len: Tokens | None = None
    n_ctx: Tokens | None = None
    context_window: Tokens | None = None
    context_length: Tokens | None = None

    def window(self) -> int | None:
        """The first that is given. What was loaded comes before what the model could do."""
        limits = msgspec.structs.astuple(self)[: len(_Limits.__struct_fields__)]
        return next(filter(None, limits), None)


class _ListedModel(_Limits, kw_only=True):
    id: str
    meta: _Limits | None = None


class _Listing(msgspec.Struct):
    data: list[Any]


def read_served_windows(listing: Any) -> dict[str, int]:
    """The window of each model that a server lists with one, in tokens.

    The answer is that of a server of any kind, so whatever has another shape is passed over.
    """
    windows: dict[str, int] = {}
    with suppress(msgspec.ValidationError):
        for entry in msgspec.convert(listing, type=_Listing).data:
            windows |= _read_model(entry)
    return windows


def _read_model(entry: Any) -> dict[str, int]:
    """The window of one model by its id; nothing if the entry does not say it."""
    try:
        model = msgspec.convert(entry, type=_ListedModel)
    except msgspec.ValidationError:
        return {}
    limits = model.meta or _Limits()
    window = model.window() or limits.window()
    return {model.id: window} if window else {}


def choose_window(windows: Mapping[str, int], model: str) -> int | None:
    """The window of a model; None if it is not listed.

    A server with one model answers to every name, as llama.cpp does.
    """
    if len(windows) == 1:
        return next(iter(windows.values()))
    return windows.get(model)
