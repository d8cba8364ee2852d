"""The account of a request: every segment with its layer, form, tokens and reason, as rows, and printed.

The print is for a terminal, and readable without colour.
"""

from __future__ import annotations

from collections import Counter as Tally

import msgspec

from lamina.core.envelope import Envelope
from lamina.core.hashing import handle
from lamina.core.tokens import Basis
from lamina.core.values import Cut, Form, Layer
from lamina.core.wording import described


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
        """Tokens by layer."""
        sums: Tally[Layer] = Tally()
        for row in self.rows:
            sums[row.layer] += row.tokens
        return {layer: sums[layer] for layer in Layer if sums[layer]}


def explain(envelope: Envelope) -> Manifest:
    account = envelope.account
    return Manifest(
        rows=tuple(_row(envelope, i) for i in range(len(envelope.entries))),
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


def _row(envelope: Envelope, index: int) -> ManifestRow:
    entry = envelope.entries[index]
    return ManifestRow(
        key=entry.segment.key or handle(entry.content),
        ref=entry.ref,
        what=described(entry.segment),
        layer=entry.layer,
        form=entry.form,
        tokens=entry.tokens,
        why=entry.why,
        recall=handle(entry.content) if entry.form is not Form.FULL else "",
    )


def table(manifest: Manifest, *, width: int = 100) -> str:
    """The manifest for a terminal: one line a segment, the sums below; readable without colour."""
    shown = [
        (r.layer.value, r.form.value, f"{r.tokens:,}", _plain(r.what), _plain(r.why)) for r in manifest.rows
    ]
    heads = ("layer", "form", "tokens", "what", "why")
    first = [max(len(row[i]) for row in [heads, *shown]) for i in range(3)]
    left = max(width - sum(first) - 8, 20)
    lines = [_line(row, first, left) for row in [heads, *shown]]
    return "\n".join([*lines, "", _sums(manifest)])


def _line(row: tuple[str, ...], widths: list[int], left: int) -> str:
    half = left * 2 // 5
    what = row[3] if len(row[3]) <= half else row[3][: half - 1] + "…"
    cells = f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]:>{widths[2]}}  {what:<{half}}  {row[4]}"
    return cells[: sum(widths) + 8 + left].rstrip()


def _plain(text: str) -> str:
    """Names come from outside: none may end its line or speak to the terminal."""
    return "".join(character if character.isprintable() else " " for character in text)


def _sums(manifest: Manifest) -> str:
    parts = [f"{layer.value} {tokens:,}" for layer, tokens in manifest.layers.items()]
    extra = (
        ("tools", manifest.tools),
        ("answer format", manifest.answer),
        ("parameters", manifest.parameters),
        ("framing", manifest.request),
        ("margin", manifest.margin),
    )
    parts += [f"{name} {tokens:,}" for name, tokens in extra if tokens]
    room = f" of {manifest.room:,}" if manifest.room is not None else ""
    total = f"{manifest.tokens:,}{room} tokens ({manifest.basis}): {' + '.join(parts) or 'nothing'}"
    return "\n".join(filter(None, [total, told(manifest.cut), *manifest.notes]))


def told(cut: Cut | None) -> str:
    """A cut in one line."""
    if cut is None:
        return ""
    amount = f", {cut.before:,} to {cut.after:,} tokens, {cut.lowered} lowered" if cut.lowered else ""
    return f"cut {cut.number}: {cut.reason}{amount}"
