"""A name stands once in the library, and once among the attachments of a turn."""

from __future__ import annotations

import msgspec
import pytest

from lamina.core.arrange import Layout
from lamina.core.build import build
from lamina.core.laws import Case, audit
from lamina.core.options import Options
from lamina.core.values import Form, Layer
from lamina.errors import LawBroken
from lamina.segments import assistant, note, user

LOG = (note("a.md", "same"), note("b.md", "other"), user("q"))


@pytest.mark.parametrize("library", ["in_place", "hoisted"])
@pytest.mark.parametrize("context", ["before", "after", "logged"])
def test_a_name_that_comes_twice_in_a_turn_stands_once(library: str, context: str) -> None:
    layout = msgspec.convert({"library": library, "context": context}, Layout)
    log = (note("a.md", "old " * 40), note("a.md", "new " * 40), user("q"))
    options = Options(layout=layout)
    envelope = build(log, options=options)
    keys = [e.segment.key for e in envelope.sent if e.layer is Layer.TURN and e.form is Form.FULL]
    assert keys == ["a.md"]
    audit(Case(log=log, envelope=envelope, options=options))


@pytest.mark.parametrize("layer", [Layer.TURN, Layer.LIBRARY])
def test_the_audit_finds_a_name_that_stands_twice_in_a_layer(layer: Layer) -> None:
    options = Options(layout=Layout(library="hoisted"))
    log = LOG if layer is Layer.TURN else (*LOG, assistant("a"), user("q2"))
    envelope = build(log, options=options)
    entries = list(envelope.entries)
    audit(Case(log=log, envelope=envelope, options=options))
    first, second = (i for i, e in enumerate(entries) if e.layer is layer and e.segment.kind == "note")
    renamed = msgspec.structs.replace(entries[second].segment, key=entries[first].segment.key)
    entries[second] = msgspec.structs.replace(entries[second], segment=renamed)
    broken = msgspec.structs.replace(envelope, entries=tuple(entries))
    with pytest.raises(LawBroken, match=r"a\.md stands twice"):
        audit(Case(log=log, envelope=broken, options=options))
