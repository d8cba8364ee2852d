"""Makes the table of models, `src/lamina/models/models.json`, from litellm's and from `models_overlay.toml`.

    python -m tools.models SOURCE                  writes the table
    python -m tools.models SOURCE --check          fails if the table is not what SOURCE gives
    python -m tools.models SOURCE --against OTHER  compares the prices with those of genai-prices

SOURCE is litellm's model_prices_and_context_window_backup.json, a folder or wheel with it, or nothing where
litellm is installed; OTHER a folder or wheel of genai-prices. Neither is needed to run lamina.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import re
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from lamina.errors import BadInput
from lamina.models import Model, Models, Prices
from lamina.models.facts import Hours, OffPeak, Tier, find_model
from lamina.models.names import key_of
from tools.models_against import compare

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "src" / "lamina" / "models" / "models.json"
OVERLAY = ROOT / "tools" / "models_overlay.toml"
BEDROCK = frozenset({"bedrock", "bedrock_converse"})

Entry = dict[str, Any]
Source = dict[str, Entry]


class SourceError(Exception):
    """A source or overlay that no table can be made of; the message says why."""


@dataclass(frozen=True)
class Row:
    """A model, the source's key for it, and where genai-prices lists it ("" if it is not compared)."""

    model: Model
    key: str
    listing: str


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.models", description="Make the table of models.")
    parser.add_argument("source", nargs="?", type=Path, help="litellm: its JSON file, a folder or a wheel")
    parser.add_argument("--check", action="store_true", help="write nothing, fail if the table differs")
    parser.add_argument("--against", type=Path, help="genai-prices: a folder or a wheel")
    options = parser.parse_args(arguments)
    overlay = tomllib.loads(OVERLAY.read_text(encoding="utf-8"))
    try:
        source, notice = read(options.source or installed(), overlay["source"])
        rows = made(source, overlay)
    except SourceError as error:
        print(f"tools.models: {error}", file=sys.stderr)
        return 2
    text = written(rows, overlay["source"], notice)
    if options.against:
        known = {name: one["reason"] for one in overlay["differs"] for name in one["names"].split()}
        return compare([(row.model, row.key, row.listing) for row in rows], options.against, known)
    if options.check:
        return checked(text)
    TABLE.write_text(text, encoding="utf-8")
    hosted = sum(1 for row in rows if row.model.listed)
    print(f"{len(rows) - hosted} models, {hosted} rows of hosts, {len(text):,} bytes")
    return 0


def installed() -> Path:
    """Where litellm is installed, without importing it."""
    found = importlib.util.find_spec("litellm")
    if found is None or not found.submodule_search_locations:
        raise SourceError("litellm is not installed: name its JSON file, folder or wheel")
    return Path(next(iter(found.submodule_search_locations))).parent


def read(path: Path, about: dict[str, str]) -> tuple[Source, str]:
    """The source's entries, and its licence where that is at hand."""
    contents = _wheel(path) if path.suffix == ".whl" else _folder(path) if path.is_dir() else {}
    if path.is_file() and path.suffix == ".json":
        contents = {path.name: path}
    data = next((at for name, at in sorted(contents.items()) if name.endswith(about["file"])), None)
    if data is None:
        raise SourceError(f"{path} has no {about['file']}")
    for name in contents:
        version = re.search(r"litellm-([^/]+)\.dist-info/", name)
        if version and version[1] != about["version"]:
            raise SourceError(f"{path} is {version[1]}, the overlay is for {about['version']}: change both")
    notice = next((at for name, at in sorted(contents.items()) if name.endswith("licenses/LICENSE")), None)
    text = notice.read_text(encoding="utf-8") if notice else ""
    return json.loads(data.read_text(encoding="utf-8")), text[text.find("MIT License") :].strip()


def made(source: Source, overlay: dict[str, Any]) -> list[Row]:
    """All rows, sorted by what they are found by."""
    rows = [row for group in overlay["group"] for row in _group(source, group)]
    for fix in overlay.get("fix", ()):
        rows = _fixed(rows, fix)
    if len({key_of(row.model.name) for row in rows}) != len(rows):
        raise SourceError("a model is named twice")
    rows += _hosted(source, rows, overlay.get("hosted", {}))
    return sorted(rows, key=lambda row: (bool(row.model.listed), row.model.listed or row.model.name))


def written(rows: list[Row], about: dict[str, str], notice: str) -> str:
    """The table as text, one row a line, so that a change reads as one."""
    head = {
        "as_of": about["released"],
        "source": f"{about['name']} {about['version']}, {about['file']}",
        "overlay": digest(OVERLAY.read_bytes()),
        "notice": notice or _kept_notice(),
    }
    lines = ",\n".join(msgspec.json.encode(row.model).decode() for row in rows)
    return f'{json.dumps(head, indent=0)[:-2]},\n"models": [\n{lines}\n]}}\n'


def digest(overlay: bytes) -> str:
    return hashlib.sha256(overlay).hexdigest()[:16]


def checked(text: str) -> int:
    """1, and the lines that differ, if the table is not this text; else 0."""
    have = TABLE.read_text(encoding="utf-8").splitlines() if TABLE.exists() else []
    want = text.splitlines()
    differing = sorted(set(have) ^ set(want))
    for line in differing[:20]:
        print(f"{'-' if line in have else '+'} {line[:160]}", file=sys.stderr)
    if have != want:
        print(f"{TABLE.name} is not what the source gives: run python -m tools.models", file=sys.stderr)
    return 1 if have != want else 0


def _kept_notice() -> str:
    """The JSON file alone comes without a licence: the one in the table stays."""
    if not TABLE.exists():
        raise SourceError("the first table needs the wheel or an installed litellm, for its licence")
    return str(json.loads(TABLE.read_text(encoding="utf-8"))["notice"])


def _wheel(path: Path) -> dict[str, Any]:
    wheel = zipfile.ZipFile(path)
    wanted = (name for name in wheel.namelist() if name.count("/") == 1 or "/licenses/" in name)
    return {name: zipfile.Path(wheel, name) for name in wanted}


def _folder(path: Path) -> dict[str, Any]:
    nearby = [
        *path.glob("*.json"),
        *path.glob("litellm/*.json"),
        *path.glob("litellm-*.dist-info/licenses/*"),
    ]
    return {at.as_posix(): at for at in nearby}


def _group(source: Source, group: dict[str, Any]) -> Iterator[Row]:
    keys = group.get("keys", {})
    for name in group["names"].split():
        key = keys.get(name, group["from"].format(name))
        if key not in source:
            raise SourceError(f"the source has no {key!r} for {name!r}")
        model = facts(source[key], name=name, family=group["family"])
        if group.get("open"):
            model = msgspec.structs.replace(model, prices=Prices(), tiers=(), off_peak=None)
        yield Row(model=model, key=key, listing=group.get("listing", ""))


def facts(entry: Entry, *, name: str, family: str) -> Model:
    """One entry of the source."""
    if not entry.get("max_input_tokens"):
        raise SourceError(f"the source has no window for {name!r}")
    minimum = entry.get("prompt_cache_min_tokens")
    prices, tiers = _prices(entry)
    return Model(
        name=name, window=int(entry["max_input_tokens"]), output=int(entry.get("max_output_tokens") or 0),
        family=family, minimum=None if minimum is None else int(minimum), prices=prices, tiers=tiers,
        off_peak=_off_peak(entry.get("off_peak_pricing")),
    )  # fmt: skip


_FIELDS = {
    "input": "input_cost_per_token",
    "output": "output_cost_per_token",
    "read": "cache_read_input_token_cost",
    "write": "cache_creation_input_token_cost",
    "write_1h": "cache_creation_input_token_cost_above_1hr",
}
_ABOVE = re.compile(r"input_cost_per_token(_above_(\d+)k_tokens)")


def _prices(entry: Entry) -> tuple[Prices, tuple[Tier, ...]]:
    ranges = entry.get("tiered_pricing")
    if ranges:
        first, *more = sorted(ranges, key=lambda one: float(one["range"][0]))
        return _at(first), tuple(Tier(above=int(one["range"][0]), prices=_at(one)) for one in more)
    steps = sorted((int(m[2]) * 1000, m[1]) for key in entry if (m := _ABOVE.fullmatch(key)))
    window = int(entry["max_input_tokens"])
    tiers = tuple(Tier(above=above, prices=_at(entry, end)) for above, end in steps if above < window)
    return _at(entry), tiers


def _at(entry: Entry, end: str = "") -> Prices:
    found = {field: _per_million(entry.get(key + end)) for field, key in _FIELDS.items()}
    if (found["write"] or 0) < (found["input"] or 0):
        found["write"] = None  # a surcharge of nothing, or a mistake: nobody writes for less than input costs
    lost = [f for f, key in _FIELDS.items() if end and found[f] is None and entry.get(key)]
    if lost:
        raise SourceError(f"no price of {', '.join(lost)} {end.replace('_', ' ').strip()}: {entry}")
    return Prices(**found)


def _per_million(price: float | None) -> float | None:
    """Through decimals: the source's 3e-08 is 0.03, and not 0.030000000000000002."""
    return None if price is None else float((Decimal(repr(price)) * 1_000_000).normalize())


def _off_peak(said: Entry | None) -> OffPeak | None:
    if said is None:
        return None
    if said.get("weekday_timezone"):
        raise SourceError("quiet hours by the weekdays of another time zone are not understood")
    hours = [
        Hours(days=tuple(window["weekdays"]), start=_minute(start), end=_minute(end) or 24 * 60)
        for window in said["windows"]
        for start, _, end in (span.partition("-") for span in _spans(window["hours_utc"]))
    ]
    return OffPeak(prices=_at(said), hours=tuple(hours))


def _spans(hours: str | list[str]) -> list[str]:
    return [hours] if isinstance(hours, str) else hours


def _minute(clock: str) -> int:
    hour, _, minute = clock.partition(":")
    return int(hour) * 60 + int(minute)


def _fixed(rows: list[Row], fix: dict[str, Any]) -> list[Row]:
    names = fix["names"].split()
    values = {field: value for field, value in fix.items() if field not in ("names", "source")}
    unknown = set(names) - {row.model.name for row in rows}
    if unknown or not values or not fix.get("source"):
        raise SourceError(f"a fix needs models of the table, a value and a source: {fix}")
    idle = [row.model.name for row in rows if row.model.name in names and _has(row.model, values)]
    if idle:
        raise SourceError(f"the source has {values} for {', '.join(idle)} by now: take that fix out")
    return [_with(row, values) if row.model.name in names else row for row in rows]


def _has(model: Model, values: dict[str, Any]) -> bool:
    return msgspec.structs.replace(model, **_typed(values)) == model


def _with(row: Row, values: dict[str, Any]) -> Row:
    return Row(model=msgspec.structs.replace(row.model, **_typed(values)), key=row.key, listing=row.listing)


def _typed(values: dict[str, Any]) -> dict[str, Any]:
    return {f: msgspec.convert(v, Prices) if f == "prices" else v for f, v in values.items()}


_DATED = re.compile(r"(?:[-@]\d{8})?(?:-v\d+)?(?::\d+)?$")
_RELEASE = re.compile(r"(?:-v\d+)?(?::\d+)?$")
_ID = re.compile(r"[a-z-]+\.[a-z0-9.:@_-]+")


def _hosted(source: Source, rows: list[Row], names: dict[str, str]) -> Iterator[Row]:
    """Rows of Amazon Bedrock that say anything else than what their names would be found as without them."""
    direct = {key_of(row.model.name): row.model for row in rows}
    hosted: dict[str, Model] = {}
    keys = [key for key, entry in source.items() if _is_hosted(key, entry)]
    newest = {_DATED.sub("", key): key for key in sorted(keys)}
    for key in sorted(keys, key=lambda key: (key.count("."), key)):  # a region's row after the vendor's
        undated = _DATED.sub("", key)
        listed = undated if newest[undated] == key else _RELEASE.sub("", key)  # an older one keeps its date
        like = direct[key_of(names[key])] if key in names else _found(listed, direct)
        if like is None:
            continue
        model = facts(source[key], name=like.name, family=like.family)
        minimum = like.minimum if model.minimum is None else model.minimum
        total = like.total if model.window == like.window else 0
        model = msgspec.structs.replace(
            model, listed=listed, binding=like.binding, minimum=minimum, total=total
        )
        without = _found(listed, hosted, direct)
        if without is None or msgspec.structs.replace(without, listed=listed) != model:
            hosted[key_of(listed)] = model
            yield Row(model=model, key=key, listing="aws")


def _is_hosted(key: str, entry: Entry) -> bool:
    host = entry.get("litellm_provider") in BEDROCK and entry.get("mode") == "chat"
    return host and _ID.fullmatch(key) is not None and bool(entry.get("max_input_tokens"))


def _found(name: str, *among: Models) -> Model | None:
    try:
        return find_model(name, *among)
    except BadInput:
        return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
