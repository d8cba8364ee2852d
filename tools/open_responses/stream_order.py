"""Whether the events of a stream tell one consistent story. The official runner does not ask this.

A client builds the answer from the events, so their numbers and their order matter as much as their shape:

- `sequence_number` rises from event to event;
- the items are numbered 0, 1, 2 …; each begins before anything is added to it, and ends before the answer;
- what was added piece by piece is what the end of a part says;
- the items that ended are the `output` of the whole answer, which keeps its id from the first event on.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

LAST_EVENTS = ("response.completed", "response.incomplete", "response.failed")

_DELTAS = {
    "response.output_text.delta": ("response.output_text.done", "text"),
    "response.refusal.delta": ("response.refusal.done", "refusal"),
    "response.function_call_arguments.delta": ("response.function_call_arguments.done", "arguments"),
    "response.reasoning.delta": ("response.reasoning.done", "text"),
    "response.reasoning_summary_text.delta": ("response.reasoning_summary_text.done", "text"),
}
"""The event that ends what a delta adds to, and the field in which it says the whole."""

Json = dict[str, Any]


def check_order(events: list[Json]) -> list[str]:
    """What is wrong with the order of a stream's events."""
    return [
        *_check_numbers(events),
        *_check_ends(events),
        *_check_items(events),
        *_check_deltas(events),
        *_check_whole(events),
    ]


def _check_numbers(events: list[Json]) -> list[str]:
    numbers = [event.get("sequence_number") for event in events]
    for before, after in pairwise(numbers):
        if not isinstance(before, int) or not isinstance(after, int) or after <= before:
            return [f"sequence_number {after} follows {before}"]
    return []


def _check_ends(events: list[Json]) -> list[str]:
    """An answer begins once, with `response.created`, and ends once."""
    event_types = [event.get("type") for event in events]
    problems: list[str] = []
    if event_types[:1] != ["response.created"]:
        problems.append(f"the first event is {event_types[:1]}")
    if event_types.count("response.created") > 1:
        problems.append("the answer begins twice")
    last_types = [event_type for event_type in event_types if event_type in LAST_EVENTS]
    if len(last_types) != 1 or event_types[-1] not in LAST_EVENTS:
        problems.append(f"the answer ends with {event_types[-1:]}, and {len(last_types)} events end it")
    return problems


def _check_items(events: list[Json]) -> list[str]:
    """Every item begins, is added to and ends, under one number and one id."""
    problems: list[str] = []
    ids: list[Any] = []
    ended: set[Any] = set()
    for event in events:
        event_type = event.get("type")
        index = event.get("output_index")
        if event_type == "response.output_item.added":
            if index != len(ids):
                problems.append(f"item {len(ids)} begins as number {index}")
            ids.append(_read_id(event))
            continue
        if index is None:
            continue
        if not isinstance(index, int) or not 0 <= index < len(ids):
            problems.append(f"{event_type} is about item {index}, which has not begun")
            continue
        if index in ended:
            problems.append(f"{event_type} is about item {index}, which has ended")
        if _read_id(event) != ids[index]:
            problems.append(f"{event_type} calls item {index} {_read_id(event)}, not {ids[index]}")
        if event_type == "response.output_item.done":
            ended.add(index)
    problems += [f"item {index} does not end" for index in range(len(ids)) if index not in ended]
    if len(set(ids)) < len(ids):
        problems.append("two items have the same id")
    return problems


def _read_id(event: Json) -> Any:
    """The id of the item that an event is about."""
    item = event.get("item")
    if isinstance(item, dict):
        return item.get("id")
    return event.get("item_id")


def _check_deltas(events: list[Json]) -> list[str]:
    """What was added to a part of an item is what its end says."""
    added: dict[tuple[Any, ...], str] = {}
    whole: dict[tuple[Any, ...], Any] = {}
    fields = dict(_DELTAS.values())
    for event in events:
        event_type = str(event.get("type"))
        part = tuple(event.get(name) for name in ("output_index", "content_index", "summary_index"))
        if event_type in _DELTAS:
            place = (_DELTAS[event_type][0], *part)
            added[place] = added.get(place, "") + str(event.get("delta"))
        elif event_type in fields:
            whole[event_type, *part] = event.get(fields[event_type])
    differing = [place for place in added.keys() | whole.keys() if added.get(place, "") != whole.get(place)]
    return sorted(f"{place[0]} of item {place[1]} does not say what was added" for place in differing)


def _check_whole(events: list[Json]) -> list[str]:
    """The last event has the items that ended, and the id that the answer began with."""
    holders = [event["response"] for event in events if isinstance(event.get("response"), dict)]
    problems: list[str] = []
    if len({holder.get("id") for holder in holders}) > 1:
        problems.append("the id of the answer changes")
    ended = [event.get("item") for event in events if event.get("type") == "response.output_item.done"]
    if holders and holders[-1].get("output") != ended:
        problems.append("the output of the whole answer is not what its events brought")
    return problems
