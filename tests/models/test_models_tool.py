from __future__ import annotations

import json
from typing import Any

import pytest

from lamina.models import Model, Prices, listed_models
from lamina.models.facts import Hours, Tier
from tools import models as tool


def entry(**more: Any) -> dict[str, Any]:
    plain = {"max_input_tokens": 1000, "max_output_tokens": 100, "mode": "chat", "litellm_provider": "acme"}
    return plain | {"input_cost_per_token": 3e-06, "output_cost_per_token": 1.5e-05} | more


def overlay(names: str, **more: Any) -> dict[str, Any]:
    return {"group": [{"family": "o200k", "from": "{}", "names": names}], **more}


def rows(source: dict[str, Any], names: str, **more: Any) -> dict[str, Any]:
    made, _ = tool.made(source, overlay(names, **more))
    return {row.model.listed or row.model.name: row.model for row in made}


def remarks(source: dict[str, Any], names: str, **more: Any) -> list[str]:
    return tool.made(source, overlay(names, **more))[1]


def test_the_table_is_made_with_the_overlay_that_stands_here() -> None:
    made = json.loads(tool.TABLE.read_text(encoding="utf-8"))
    assert made["overlay"] == tool.digest(tool.OVERLAY.read_bytes()), "run python -m tools.models"
    assert len(made["models"]) == len(listed_models())


def test_prices_are_per_million_and_exact() -> None:
    made = rows({"a": entry(cache_read_input_token_cost=3e-08)}, "a")["a"]
    assert made.prices == Prices(input=3.0, output=15.0, read=0.03)


def test_a_write_that_is_free_on_top_of_input_has_no_price_of_its_own() -> None:
    assert rows({"a": entry(cache_creation_input_token_cost=0.0)}, "a")["a"].prices.write is None


def test_tiers_above_a_size() -> None:
    longer = {
        "input_cost_per_token_above_200k_tokens": 6e-06,
        "output_cost_per_token_above_200k_tokens": 3e-05,
    }
    made = rows({"a": entry(max_input_tokens=10**6, **longer)}, "a")["a"]
    assert made.tiers == (Tier(above=200_000, prices=Prices(input=6, output=30)),)
    assert rows({"a": entry(max_input_tokens=200_000, **longer)}, "a")["a"].tiers == ()


def test_a_tier_that_lacks_a_price_is_refused() -> None:
    source = entry(max_input_tokens=10**6, input_cost_per_token_above_200k_tokens=6e-06)
    with pytest.raises(tool.SourceError, match="no price of output"):
        rows({"a": source}, "a")


def test_tiers_by_range() -> None:
    ranges = [
        {"range": [32000.0, 64000.0], "input_cost_per_token": 2e-06, "output_cost_per_token": 2e-06},
        {"range": [0, 32000.0], "input_cost_per_token": 1e-06, "output_cost_per_token": 1e-06},
    ]
    made = rows({"a": entry(tiered_pricing=ranges)}, "a")["a"]
    assert made.prices == Prices(input=1, output=1)
    assert made.tiers == (Tier(above=32_000, prices=Prices(input=2, output=2)),)


def test_quiet_hours() -> None:
    windows = [
        {"hours_utc": ["22:30-00:00"], "weekdays": [1, 2]},
        {"hours_utc": "00:00-00:00", "weekdays": [7]},
    ]
    quiet = {"input_cost_per_token": 1e-06, "output_cost_per_token": 1e-06, "windows": windows}
    made = rows({"a": entry(off_peak_pricing=quiet)}, "a")["a"].off_peak
    assert made.hours == (Hours(days=(1, 2), start=1350, end=1440), Hours(days=(7,), start=0, end=1440))
    with pytest.raises(tool.SourceError, match="time zone"):
        rows({"a": entry(off_peak_pricing=quiet | {"weekday_timezone": "Asia/Shanghai"})}, "a")


def test_open_models_have_no_prices() -> None:
    group = {"family": "o200k", "from": "{}", "names": "a", "open": True}
    [[row], _] = tool.made({"a": entry()}, {"group": [group]})
    assert (row.model.window, row.model.prices) == (1000, Prices())


def test_a_host_has_a_row_only_where_it_differs() -> None:
    bedrock = {"litellm_provider": "bedrock_converse"}
    source = {
        "a-1": entry(),
        "acme.a-1-20260101-v1:0": entry(**bedrock),
        "us.acme.a-1-20260101-v1:0": entry(input_cost_per_token=4e-06, **bedrock),
        "us.acme.a-1-mini": entry(input_cost_per_token=4e-06, **bedrock),
        "us.acme.other": entry(**bedrock),
        "acme.one": entry(max_input_tokens=500, **bedrock),
    }
    made = rows(source, "a-1", hosted={"acme.one": "a-1"})
    assert sorted(made) == ["a-1", "acme.one", "us.acme.a-1"]
    assert (made["us.acme.a-1"].name, made["us.acme.a-1"].prices.input) == ("a-1", 4.0)
    assert (made["acme.one"].name, made["acme.one"].window) == ("a-1", 500)


def test_an_older_release_of_a_host_is_found_under_its_date_alone() -> None:
    bedrock = {"litellm_provider": "bedrock_converse"}
    source = {
        "a-1": entry(),
        "acme.a-1-20260101-v1:0": entry(max_output_tokens=50, **bedrock),
        "acme.a-1-20260601-v2:0": entry(max_output_tokens=70, **bedrock),
    }
    made = rows(source, "a-1")
    assert {name: row.output for name, row in made.items()} == {
        "a-1": 100,
        "acme.a-1": 70,
        "acme.a-1-20260101": 50,
    }


def test_a_fix_changes_what_it_names() -> None:
    fix = [
        {
            "names": "a",
            "minimum": 64,
            "prices": {"input": 1.0, "output": 2.0},
            "source": "a page",
            "date": "2026-01",
        }
    ]
    made = rows({"a": entry(), "b": entry()}, "a b", fix=fix)
    assert (made["a"].minimum, made["a"].prices) == (64, Prices(input=1, output=2))
    assert made["b"].minimum is None


@pytest.mark.parametrize(
    "fix",
    [
        {"names": "c", "minimum": 64, "source": "a page", "date": "2026-01"},
        {"names": "a", "minimum": 64, "date": "2026-01"},
        {"names": "a", "minimum": 64, "source": "a page"},
        {"names": "a", "source": "a page", "date": "2026-01"},
    ],
)
def test_a_fix_names_models_a_value_its_source_and_its_date(fix: dict[str, Any]) -> None:
    with pytest.raises(tool.SourceError, match=r"a fix needs|needs a source and a date"):
        rows({"a": entry()}, "a", fix=[fix])


def test_what_the_list_has_caught_up_with_is_said() -> None:
    fix = {"names": "a", "output": 100, "source": "a page", "date": "2026-01"}
    assert remarks({"a": entry()}, "a", fix=[fix]) == [
        "a: the list has {'output': 100} by now; take that fix out of the overlay"
    ]
    own = {"name": "b", "like": "a", "source": "an SDK", "date": "2026-01"}
    assert remarks({"a": entry()}, "a", own=[own]) == []
    assert remarks({"a": entry(), "b": entry()}, "a", own=[own]) == [
        "b: the list has it by now; take its row out of the overlay"
    ]


def test_an_own_row_has_the_limits_of_the_model_that_it_is_like_and_no_price() -> None:
    own = {"name": "b", "like": "a", "binding": "strict", "source": "an SDK", "date": "2026-01"}
    made = rows({"a": entry()}, "a", own=[own])["b"]
    assert (made.window, made.binding, made.like, made.inferred, made.prices) == (
        1000, "strict", "a", True, Prices(),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("source", "problem"), [({}, "no window"), ({"a": entry(max_input_tokens=None)}, "no window")]
)
def test_a_row_that_the_list_has_no_more_stays_and_is_said(source: dict[str, Any], problem: str) -> None:
    with pytest.raises(tool.SourceError, match=problem):
        rows(source, "a")
    kept = Model(name="a", window=7)
    made, said = tool.made(source, overlay("a"), kept={"a": kept})
    assert [row.model for row in made] == [kept]
    assert said == ["a (a): the source has no window; its row stays as it is"]


def test_two_rows_of_one_name_are_refused() -> None:
    with pytest.raises(tool.SourceError, match="named twice"):
        rows({"a": entry()}, "a a")


def test_a_field_that_nobody_knows_is_said_and_not_refused() -> None:
    source = {"a": entry(moonlight_cost_per_token=1e-6, input_cost_per_token_batches=1e-6)}
    assert remarks(source, "a", fields={"left_out": "_batches"}) == [
        "unknown field moonlight_cost_per_token of a and 0 others: it is not read"
    ]


def test_a_model_that_no_group_takes_is_said() -> None:
    untaken = {"providers": ["acme"], "left_out": "^voice"}
    source = {"a": entry(), "a-20260101": entry(), "acme/b": entry(), "voice-1": entry()}
    assert remarks(source, "a", untaken=untaken) == [
        "1 of the list are in no group and served as the nearest: b"
    ]


def test_a_refresh_says_what_changed() -> None:
    before = {"a": Model(name="a", window=1), "b": Model(name="b", window=2), "c": Model(name="c", window=3)}
    after = [Model(name="b", window=2), Model(name="c", window=4), Model(name="d", window=5)]
    assert tool.compare_rows(before, after) == ["- a", "~ c: window 3 -> 4", "+ d: window 5, no prices"]
