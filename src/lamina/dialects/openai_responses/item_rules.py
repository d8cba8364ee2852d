"""Rules of the Responses API about items: their types, ids and order, and reasoning among them."""

from __future__ import annotations

from lamina.core.values import Role
from lamina.dialects.json_values import text_or_empty
from lamina.dialects.openai_responses.items import PHASES, has_fitting_id, may_follow_reasoning, read_item_id
from lamina.dialects.openai_responses.readings import Breaches, ResponsesReading


def items_say_what_they_are(reading: ResponsesReading) -> Breaches:
    """Each item is an object with a type, or a message; a reference says what it refers to."""
    for view in reading.items:
        if not view.item_type:
            yield view.place, "not an object with a type"
        elif view.item_type == "item_reference" and not read_item_id(view.item):
            yield f"{view.place}.id", "missing, empty or not text"


def roles_are_known(reading: ResponsesReading) -> Breaches:
    """A message has one of the roles of this API."""
    for view in reading.items_of_type("message"):
        if view.role is None:
            yield f"{view.place}.role", "not a role of this API"


def reasoning_is_followed(reading: ResponsesReading) -> Breaches:
    """R3: reasoning stands before the item that it led to.

    Read from the end: what follows a run of reasoning decides for the whole run.
    """
    is_followed = False
    for view in reversed(reading.items):
        if view.item_type != "reasoning":
            is_followed = may_follow_reasoning(view.item)
        elif not is_followed:
            yield view.place, "no item of the model follows this reasoning"


def reasoning_can_be_read_again(reading: ResponsesReading) -> Breaches:
    """R4: if nothing is stored, reasoning needs its encrypted content, and nothing can be referred to."""
    if reading.request.get("store") is not False:
        return
    for view in reading.items_of_type("reasoning"):
        if not view.item.get("encrypted_content"):
            yield view.place, "no encrypted_content, and nothing is stored"


def phases_are_known(reading: ResponsesReading) -> Breaches:
    """R5: the phase of a message is one that the API gave, and the assistant's."""
    for view in reading.items_of_type("message"):
        phase = view.item.get("phase")
        is_right = phase in PHASES and view.role is Role.ASSISTANT
        if phase is not None and not is_right:
            yield f"{view.place}.phase", "not a phase of an assistant message"


def a_trigger_stands_last(reading: ResponsesReading) -> Breaches:
    """R6: an item that triggers a compaction is the last one."""
    for view in reading.items[:-1]:
        if view.item_type == "compaction_trigger":
            yield view.place, "items stand after it"


def compactions_are_whole(reading: ResponsesReading) -> Breaches:
    """R9: a compaction is sent back as it came."""
    for view in reading.items_of_type("compaction"):
        if not text_or_empty(view.item.get("encrypted_content")):
            yield view.place, "no encrypted_content"


def item_ids_are_unique(reading: ResponsesReading) -> Breaches:
    """No item is sent twice: "Duplicate item found with id"."""
    seen_ids: set[str] = set()
    for view in reading.items:
        item_id = read_item_id(view.item)
        if item_id and (item_id in seen_ids or item_id in reading.past.item_ids):
            yield f"{view.place}.id", f"an item before it has {item_id!r} too"
        seen_ids.add(item_id)


def item_ids_fit_their_type(reading: ResponsesReading) -> Breaches:
    """The id of a message begins with msg, of a function call with fc, of reasoning with rs.

    Broken by clients that make up ids, such as a UUID for each item.
    """
    for view in reading.items:
        if not has_fitting_id(view.item):
            yield f"{view.place}.id", "not an id of an item of this type"
