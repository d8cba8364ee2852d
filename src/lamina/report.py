"""The account of a request, printed: for a terminal, readable without colour."""

from __future__ import annotations

from lamina.core.explain import Manifest
from lamina.core.values import Cut


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
    extra = (("tools", manifest.tools), ("framing", manifest.request), ("margin", manifest.margin))
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
