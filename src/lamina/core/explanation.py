"""The account of a request: every segment with its layer, form, tokens and reason, as rows or as a table.

The table is for a terminal, and readable without colour.
"""

from __future__ import annotations

from collections import Counter as Tally
from typing import NamedTuple

import msgspec

from lamina.core.envelope import Envelope
from lamina.core.hashing import handle
from lamina.core.tokens import Basis
from lamina.core.values import Cut, Entry, Form, Layer
from lamina.core.wording import describe_segment


class ManifestRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the manifest."""

    key: str
    ref: str
    what: str
    layer: Layer
    form: Form
    tokens: int
    why: str
    recall: str = ""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was decided about one request. `rows` and the other amounts sum to `tokens`."""

    rows: tuple[ManifestRow, ...]
    tokens: int
    exact: bool
    basis: Basis
    tools: int
    answer: int
    parameters: int
    request: int
    margin: int
    room: int | None
    cut: Cut | None
    notes: tuple[str, ...]

    @property
    def layers(self) -> dict[Layer, int]:
        """Tokens by layer, in the order of the request. Layers without a token are left out."""
        sums: Tally[Layer] = Tally()
        for row in self.rows:
            sums[row.layer] += row.tokens
        return {layer: sums[layer] for layer in Layer if sums[layer]}


def explain(envelope: Envelope) -> Manifest:
    """Everything that was decided about one request."""
    account = envelope.account
    return Manifest(
        rows=tuple(_make_row(entry) for entry in envelope.entries),
        tokens=account.total,
        exact=account.exact,
        basis=account.basis,
        tools=account.tools,
        answer=account.answer,
        parameters=account.parameters,
        request=account.request,
        margin=account.margin,
        room=envelope.room,
        cut=envelope.cut,
        notes=envelope.notes,
    )


def _make_row(entry: Entry) -> ManifestRow:
    recall_key = ""
    if entry.form is not Form.FULL:
        recall_key = handle(entry.content)
    return ManifestRow(
        key=entry.segment.key or handle(entry.content),
        ref=entry.ref,
        what=describe_segment(entry.segment),
        layer=entry.layer,
        form=entry.form,
        tokens=entry.tokens,
        why=entry.why,
        recall=recall_key,
    )


class _TableLine(NamedTuple):
    """The cells of one printed line."""

    layer: str
    form: str
    tokens: str
    what: str
    why: str


_TABLE_HEAD = _TableLine(layer="layer", form="form", tokens="tokens", what="what", why="why")
_GAPS = 8  # characters between the five columns
_NARROWEST = 20  # characters that the last two columns have at least


def table(manifest: Manifest, *, width: int = 100) -> str:
    """The manifest for a terminal: one line a segment, the sums below; readable without colour."""
    lines = [_TABLE_HEAD]
    lines += [_print_cells(row) for row in manifest.rows]
    layer_width = max(len(line.layer) for line in lines)
    form_width = max(len(line.form) for line in lines)
    tokens_width = max(len(line.tokens) for line in lines)
    width_of_first = layer_width + form_width + tokens_width
    width_of_last = max(width - width_of_first - _GAPS, _NARROWEST)
    what_width = width_of_last * 2 // 5
    printed: list[str] = []
    for line in lines:
        first_cells = f"{line.layer:<{layer_width}}  {line.form:<{form_width}}  {line.tokens:>{tokens_width}}"
        text = f"{first_cells}  {_cut_cell(line.what, what_width):<{what_width}}  {line.why}"
        printed.append(text[: width_of_first + _GAPS + width_of_last].rstrip())
    return "\n".join([*printed, "", _print_sums(manifest)])


def _print_cells(row: ManifestRow) -> _TableLine:
    return _TableLine(
        layer=row.layer.value,
        form=row.form.value,
        tokens=f"{row.tokens:,}",
        what=_make_printable(row.what),
        why=_make_printable(row.why),
    )


def _cut_cell(text: str, width: int) -> str:
    """The text in at most `width` characters, with an ellipsis if it is longer."""
    if len(text) <= width:
        return text
    return text[: width - 1] + "…"


def _make_printable(text: str) -> str:
    """Names come from outside: none may end its line or send commands to the terminal."""
    return "".join(character if character.isprintable() else " " for character in text)


def _print_sums(manifest: Manifest) -> str:
    """The total with its addends, the cut, and the notes, one a line."""
    addends = {layer.value: tokens for layer, tokens in manifest.layers.items()}
    addends |= {
        "tools": manifest.tools,
        "answer format": manifest.answer,
        "parameters": manifest.parameters,
        "framing": manifest.request,
        "margin": manifest.margin,
    }
    sums = " + ".join(f"{name} {tokens:,}" for name, tokens in addends.items() if tokens)
    total = f"{manifest.tokens:,}"
    if manifest.room is not None:
        total += f" of {manifest.room:,}"
    lines = [
        f"{total} tokens ({manifest.basis}): {sums or 'nothing'}",
        describe_cut(manifest.cut),
        *manifest.notes,
    ]
    return "\n".join(line for line in lines if line)


def describe_cut(cut: Cut | None) -> str:
    """A cut in one line.

    `cut 1: over the trigger, 5,448 to 1,874 tokens, 16 lowered`. A change by the client lowers nothing, and
    has its reason alone.
    """
    if cut is None:
        return ""
    line = f"cut {cut.number}: {cut.reason}"
    if cut.lowered:
        line += f", {cut.before:,} to {cut.after:,} tokens, {cut.lowered} lowered"
    return line
