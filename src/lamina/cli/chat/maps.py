"""What `/context`, `/why` and `/cost` show, as text: readable without colour. Functions of values only."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Sequence

from lamina.agent import Spent
from lamina.cli.bar import amounts
from lamina.core.cut_target import limits
from lamina.core.envelope import Envelope
from lamina.core.explanation import Manifest, ManifestRow, told
from lamina.core.values import Budget, Form

BAR, KEY, WHAT = 30, 28, 16
NOTHING = "nothing was sent yet"


def window_map(envelope: Envelope, manifest: Manifest, budget: Budget | None) -> str:
    """The request by layers, in tokens and bars; its forms; its limits; its last cut."""
    parts = amounts(envelope)
    total = sum(parts.values()) or 1
    lines = [
        f"{name:<8} {_bar(tokens, total)} {tokens:>9,}  {tokens / total:>4.0%}"
        for name, tokens in parts.items()
    ]
    basis = "" if manifest.exact else f" ({manifest.basis})"
    room = f" of {manifest.room:,}" if manifest.room is not None else ""
    lines += [
        "",
        f"{manifest.tokens:,}{room} tokens{basis} in {len(manifest.rows)} segments: {_forms(manifest.rows)}",
    ]
    if budget is not None:
        tight = limits(budget, envelope.head, envelope.entries)
        reserve = budget.window - tight.room
        lines.append(
            f"window {budget.window:,}, {reserve:,} of it for the answer; "
            f"a cut is due above {tight.trigger:,} and goes down to {tight.target:,}"
        )
    cuts = envelope.ledger.cuts
    lines.append(
        f"{len(cuts)} cut{'s' * (len(cuts) != 1)}; the last, {told(cuts[-1])}" if cuts else "no cut so far"
    )
    return "\n".join([*lines, *manifest.notes])


def _bar(tokens: int, total: int) -> str:
    filled = max(tokens * BAR // total, 1)
    return "█" * filled + "·" * (BAR - filled)


def _forms(rows: Iterable[ManifestRow]) -> str:
    counts = Tally(row.form for row in rows)
    return ", ".join(f"{counts[form]} {form.value}" for form in reversed(Form) if counts[form]) or "none"


def reasons(rows: Sequence[ManifestRow], *, width: int) -> str:
    """One line for each segment: its key, where it stands, in which form, and why."""
    heads = ("key", "what", "layer", "form", "tokens", "why")
    shown = [heads, *(_cells(row) for row in rows)]
    wide = [max(len(line[i]) for line in shown) for i in range(5)]
    lines = ["  ".join([*map(str.ljust, line[:4], wide), line[4].rjust(wide[4]), line[5]]) for line in shown]
    return "\n".join(_cut(line.rstrip(), max(width, 60)) for line in lines)


def _cells(row: ManifestRow) -> tuple[str, str, str, str, str, str]:
    what = _cut(row.what, WHAT) if row.what != row.key else ""
    return _cut(row.key, KEY), what, row.layer.value, row.form.value, f"{row.tokens:,}", row.why


def reason(row: ManifestRow, text: str) -> str:
    """One segment: everything that is known about its place, and how it begins."""
    back = f"\nin full with /recall {row.recall}" if row.recall else ""
    begins = _cut(" ".join(text.split()), 200)
    place = f"{row.layer.value} layer, {row.form.value}, {row.tokens:,} tokens: {row.why}"
    return f"{row.key}: {row.what}\n{place}{back}\n{begins}"


def account(last: Spent, all_: Spent, ahead: str) -> str:
    """What the last turn and all turns of this run took, and what the next request costs."""
    lines = [f"last turn: {_spent(last)}", f"since this chat was opened: {_spent(all_)}"]
    return "\n".join([*lines, *([ahead] if ahead else [])])


def _spent(spent: Spent) -> str:
    if not spent.steps:
        return "nothing"
    share = f" ({spent.cached / spent.input:.0%} from the cache)" if spent.input else ""
    money = "no price is known" if spent.money is None else f"${spent.money:.4f}"
    calls = f"{spent.steps:,} call{'s' * (spent.steps != 1)}"
    return f"{calls}, {spent.input:,} tokens read{share}, {spent.output:,} written, {money}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
