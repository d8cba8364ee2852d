"""One move of full forms, alone: a cut repeats it until no reference is lost, and does not end without it."""

from __future__ import annotations

from lamina import BuildMemo, Form, Ledger, Options, RequestHead
from lamina.core import CHARS4
from lamina.core.arrange import arrange_log
from lamina.core.moved_copies import move_full_forms
from lamina.core.options import BuildContext
from lamina.core.scale import make_scale
from lamina.core.tool_definitions import chain_root
from lamina.segments import assistant, file, user

SPEC = "The importer reads one file and writes one table. " * 20


def test_the_newest_reference_gets_the_full_form_and_other_content_stays() -> None:
    turns = [[file("other.md", SPEC), file("spec.md", SPEC), user(question)] for question in "abc"]
    log = (*turns[0], assistant("Yes."), *turns[1], assistant("Yes."), *turns[2])
    memo, head = BuildMemo(), RequestHead()
    context = BuildContext(
        options=Options(),
        head=head,
        scale=make_scale(CHARS4, head, None, {}),
        ledger=Ledger(),
        root=chain_root(head, ""),
        find_reader=lambda: memo.reader_for(Options().kinds),
        find_passages=memo.passages_for,
    )
    draft = arrange_log(log, context)
    moved = move_full_forms(draft, draft.entries[1:2], context)
    spec = [entry.form for entry in moved.entries if entry.segment.key == "spec.md"]
    others = [entry.form for entry in moved.entries if entry.segment.key == "other.md"]
    assert [form is Form.FULL for form in spec] == [False, False, True]
    assert others == [entry.form for entry in draft.entries if entry.segment.key == "other.md"]
    assert moved.tokens == sum(entry.tokens for entry in moved.entries)
