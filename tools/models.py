"""Makes the table of models, `src/lamina/models/models.json`, from litellm's and from `models_overlay.toml`.

    python -m tools.models                    writes the table from the newest litellm of the package index
    python -m tools.models --dry-run          prints what that would change
    python -m tools.models --against OTHER    compares the prices with those of genai-prices

`--source` names another list: litellm's model_prices_and_context_window_backup.json, or a folder or wheel
with it. OTHER is a folder or wheel of genai-prices. Neither is needed to run lamina.

Nothing that the list has changed stops a refresh. What is not understood is reported, and the row stays as
it is: a price or field that lamina does not know, a model that the list has dropped, one that no group
takes, a row of the overlay that the list has caught up with.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
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
FACTS = TABLE.with_name("facts.py")
DOWNLOADS = ROOT / "build" / "models"
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
    parser.add_argument("--source", type=Path, help="litellm: its JSON file, a folder or a wheel")
    parser.add_argument("--dry-run", action="store_true", help="write nothing")
    parser.add_argument("--against", type=Path, help="genai-prices: a folder or a wheel")
    options = parser.parse_args(arguments)
    overlay = tomllib.loads(OVERLAY.read_text(encoding="utf-8"))
    try:
        source, notice, version = read(options.source or download(), overlay["source"]["file"])
        rows, remarks = made(source, overlay, kept=kept_rows())
    except SourceError as error:
        print(f"tools.models: {error}", file=sys.stderr)
        return 2
    if options.against:
        known = {name: one["reason"] for one in overlay["differs"] for name in one["names"].split()}
        return compare([(row.model, row.key, row.listing) for row in rows], options.against, known)
    changes = compare_rows(kept_rows(), [row.model for row in rows])
    for line in (*remarks, *changes):
        print(line)
    head = json.loads(TABLE.read_text(encoding="utf-8"))
    label = f"{overlay['source']['name']} {version}, {overlay['source']['file']}"
    if not options.dry_run:
        as_of = head["as_of"] if head["source"] == label else datetime.now(UTC).date().isoformat()
        TABLE.write_text(written(rows, as_of, label, notice or head["notice"]), encoding="utf-8")
        FACTS.write_text(
            re.sub(
                r'^AS_OF = ".*"$', f'AS_OF = "{as_of}"', FACTS.read_text(encoding="utf-8"), flags=re.MULTILINE
            ),
            encoding="utf-8",
        )
    hosted = sum(1 for row in rows if row.model.listed)
    print(
        f"{label}: {len(rows) - hosted} models, {hosted} rows of hosts; {len(changes)} changes to what was "
        f"from {head['source'].partition(',')[0]}, {len(remarks)} remarks"
    )
    return 0


def download() -> Path:
    """The newest wheel of litellm, from the index that pip is set up for. It is not installed."""
    with suppress(FileNotFoundError):
        shutil.rmtree(DOWNLOADS)
    command = (
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "-d",
        str(DOWNLOADS),
        "litellm",
    )
    if subprocess.run(command, check=False).returncode:
        raise SourceError("litellm cannot be downloaded: name its JSON file, folder or wheel with --source")
    return next(DOWNLOADS.glob("litellm-*.whl"))


def read(path: Path, file: str) -> tuple[Source, str, str]:
    """The source's entries, and its licence and version where those are at hand."""
    contents = _wheel(path) if path.suffix == ".whl" else _folder(path) if path.is_dir() else {}
    if path.is_file() and path.suffix == ".json":
        contents = {path.name: path}
    data = next((at for name, at in sorted(contents.items()) if name.endswith(file)), None)
    if data is None:
        raise SourceError(f"{path} has no {file}")
    versions = [
        match[1] for match in (re.search(r"litellm-([^/]+)\.dist-info/", name) for name in contents) if match
    ]
    notice = next((at for name, at in sorted(contents.items()) if name.endswith("licenses/LICENSE")), None)
    text = notice.read_text(encoding="utf-8") if notice else ""
    entries = json.loads(data.read_text(encoding="utf-8"))
    return entries, text[text.find("MIT License") :].strip(), "".join(versions[:1])


def kept_rows() -> dict[str, Model]:
    """The rows of the table as it is, by what they are found by."""
    models = msgspec.json.decode(TABLE.read_bytes(), type=dict[str, Any])["models"]
    return {row.listed or row.name: row for row in msgspec.convert(models, list[Model])}


def compare_rows(before: dict[str, Model], after: list[Model]) -> list[str]:
    """A line for each row that came, went or changed, with the fields that differ."""
    now = {row.listed or row.name: row for row in after}
    lines = [f"- {name}" for name in sorted(before.keys() - now.keys())]
    for name, row in sorted(now.items()):
        if name not in before:
            lines.append(f"+ {name}: window {row.window:,}, {_describe(row.prices)}")
            continue
        old, new = msgspec.to_builtins(before[name]), msgspec.to_builtins(row)
        changed = [field for field in sorted(old.keys() | new.keys()) if old.get(field) != new.get(field)]
        if changed:
            values = "; ".join(f"{field} {old.get(field)} -> {new.get(field)}" for field in changed)
            lines.append(f"~ {name}: {values}")
    return lines


def _describe(prices: Prices) -> str:
    if prices.input is None:
        return "no prices"
    return f"{prices.input:g} / {prices.output:g} USD for a million tokens"


def made(
    source: Source, overlay: dict[str, Any], *, kept: Mapping[str, Model] | None = None
) -> tuple[list[Row], list[str]]:
    """All rows, sorted by what they are found by, and what is to be said of the list and of the overlay.

    A row that the source does not give, or not so that it is understood, stays as it is in `kept`.
    """
    remarks: list[str] = []
    rows: list[Row] = []
    for group in overlay["group"]:
        rows += _group(source, group, kept or {}, remarks)
    for own in overlay.get("own", ()):
        rows += _own(own, rows, source, remarks)
    for fix in overlay.get("fix", ()):
        rows = _fixed(rows, fix, remarks)
    if len({key_of(row.model.name) for row in rows}) != len(rows):
        raise SourceError("a model is named twice")
    rows += _hosted(source, rows, overlay.get("hosted", {}), remarks)
    remarks += _find_unknown_fields(source, rows, overlay.get("fields", {}))
    remarks += _find_untaken(source, rows, overlay.get("untaken", {}))
    return sorted(rows, key=lambda row: (bool(row.model.listed), row.model.listed or row.model.name)), remarks


def written(rows: list[Row], as_of: str, label: str, notice: str) -> str:
    """The table as text, one row a line, so that a change reads as one."""
    head = {"as_of": as_of, "source": label, "overlay": digest(OVERLAY.read_bytes()), "notice": notice}
    lines = ",\n".join(msgspec.json.encode(row.model).decode() for row in rows)
    return f'{json.dumps(head, indent=0)[:-2]},\n"models": [\n{lines}\n]}}\n'


def digest(overlay: bytes) -> str:
    return hashlib.sha256(overlay).hexdigest()[:16]


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


def _group(
    source: Source, group: dict[str, Any], kept: Mapping[str, Model], remarks: list[str]
) -> Iterator[Row]:
    keys = group.get("keys", {})
    for name in group["names"].split():
        key = keys.get(name, group["from"].format(name))
        try:
            model = facts(source.get(key, {}), name=name, family=group["family"])
        except SourceError as error:
            if name not in kept:
                raise SourceError(f"{name} ({key}): {error}") from None
            remarks.append(f"{name} ({key}): {error}; its row stays as it is")
            model = kept[name]
        if group.get("open"):
            model = msgspec.structs.replace(model, prices=Prices(), tiers=(), off_peak=None)
        if group.get("two_caches"):
            model = _without_cache_prices(model)
        yield Row(model=model, key=key, listing=group.get("listing", ""))


def _without_cache_prices(model: Model) -> Model:
    """A model whose list price of a read is not known to be that of the cache that is used."""
    tiers = [
        msgspec.structs.replace(tier, prices=Prices(input=tier.prices.input, output=tier.prices.output))
        for tier in model.tiers
    ]
    plain = Prices(input=model.prices.input, output=model.prices.output)
    return msgspec.structs.replace(model, prices=plain, tiers=tuple(tiers))


def _own(own: dict[str, Any], rows: list[Row], source: Source, remarks: list[str]) -> Iterator[Row]:
    """A model that the source lacks: with the limits of the one that it is like, and without a price."""
    _check_said(own)
    [like] = [row.model for row in rows if row.model.name == own["like"]]
    if own["name"] in source:
        remarks.append(f"{own['name']}: the list has it by now; take its row out of the overlay")
    values = _typed({field: value for field, value in own.items() if field not in (*_SAID, "like")})
    unpriced = msgspec.structs.replace(like, prices=Prices(), tiers=(), off_peak=None)
    model = msgspec.structs.replace(unpriced, like=like.name, inferred=True, **values)
    yield Row(model=model, key=own["name"], listing="")


_SAID = ("names", "source", "date")
"""What a row of the overlay says of itself."""


def _check_said(said: dict[str, Any]) -> None:
    if not said.get("source") or not re.fullmatch(r"20\d\d-\d\d(-\d\d)?", said.get("date", "")):
        raise SourceError(f"a row of the overlay needs a source and a date: {said}")


def facts(entry: Entry, *, name: str, family: str) -> Model:
    """One entry of the source."""
    if not entry.get("max_input_tokens"):
        raise SourceError("the source has no window")
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
_LONGEST_WRITES = ("cache_creation_input_token_cost_above_12hr",)
"""Other names for the price of a write that lives longer than usual: OpenAI's lives for 12 hours."""
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
    for key in _LONGEST_WRITES:
        found["write_1h"] = found["write_1h"] or _per_million(entry.get(key + end))
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


def _fixed(rows: list[Row], fix: dict[str, Any], remarks: list[str]) -> list[Row]:
    _check_said(fix)
    names = fix["names"].split()
    values = {field: value for field, value in fix.items() if field not in _SAID}
    unknown = set(names) - {row.model.name for row in rows}
    if unknown or not values:
        raise SourceError(f"a fix needs models of the table and a value: {fix}")
    idle = [row.model.name for row in rows if row.model.name in names and _has(row.model, values)]
    if idle:
        remarks.append(f"{', '.join(idle)}: the list has {values} by now; take that fix out of the overlay")
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


def _hosted(source: Source, rows: list[Row], names: dict[str, str], remarks: list[str]) -> Iterator[Row]:
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
        try:
            model = facts(source[key], name=like.name, family=like.family)
        except SourceError as error:
            remarks.append(f"{key}: {error}; it has no row of its own")
            continue
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


_COSTS = re.compile(r".*(?:cost|pric|cache|token|multiplier).*")
"""Fields of an entry that may say what something costs or how long it may be."""


def _find_unknown_fields(source: Source, rows: list[Row], said: dict[str, Any]) -> Iterator[str]:
    """The fields that may be prices or limits, and that are neither read nor left out on purpose."""
    left_out = re.compile("|".join(said.get("left_out", "").split()) or "$")
    read_fields = {*_FIELDS.values(), *_LONGEST_WRITES, "max_input_tokens", "max_output_tokens"}
    read_fields |= {"prompt_cache_min_tokens", "tiered_pricing", "off_peak_pricing"}
    unknown: dict[str, list[str]] = {}
    for row in rows:
        for field in source.get(row.key, ()):
            plain = re.sub(r"_above_\d+k_tokens", "", field)
            if plain not in read_fields and _COSTS.fullmatch(field) and not left_out.search(field):
                unknown.setdefault(field, []).append(row.model.name)
    for field, names in sorted(unknown.items()):
        yield f"unknown field {field} of {names[0]} and {len(names) - 1} others: it is not read"


def _find_untaken(source: Source, rows: list[Row], said: dict[str, Any]) -> Iterator[str]:
    """The models of the providers in the table that the list has and no group takes, in one line."""
    left_out = re.compile("|".join(said.get("left_out", "").split()) or "$")
    taken = {row.key for row in rows}
    models = {key_of(row.model.name): row.model for row in rows}
    untaken = []
    for key, entry in sorted(source.items()):
        is_direct = entry.get("litellm_provider") in said.get("providers", ())
        if not is_direct or entry.get("mode") not in ("chat", "responses") or left_out.search(key):
            continue
        if key not in taken and _found(key, models) is None:
            untaken.append(key.rpartition("/")[2])
    if untaken:
        yield f"{len(untaken)} of the list are in no group and served as the nearest: {' '.join(untaken)}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
