"""Writes what `/context`, `/why` and `/cost` show, and the line after an answer. It needs no colour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from lamina.agent import TurnCost
from lamina.cli.chat.costs import CountedCost
from lamina.cli.explain import layer_lines
from lamina.cli.output import shorten
from lamina.core.cut_target import count_fixed, derive_limits
from lamina.core.envelope import Envelope
from lamina.core.explanation import Manifest, ManifestRow, describe_cut, describe_row, join_folds
from lamina.core.values import Budget, Entry, Form, Ledger, Preference
from lamina.dialects.usage import count_noun
from lamina.models.facts import AS_OF
from lamina.sessions.reports import TurnReport

KEY_WIDTH, WHAT_WIDTH = 28, 16
NOTHING = "nothing was sent yet"


def window_map(envelope: Envelope, manifest: Manifest, budget: Budget | None, prefer: Preference) -> str:
    """The request by layers, in tokens and bars; its forms; its limits; its last cut."""
    lines = [*layer_lines(envelope), "", _describe_size(manifest)]
    if budget is not None:
        lines.append(_describe_limits(envelope, budget, prefer))
    lines.append(_describe_cuts(envelope))
    return "\n".join([*lines, *manifest.notes])


def describe_turn(envelope: Envelope, spent: TurnCost, report: TurnReport) -> str:
    """The line after an answer: what was sent, what of it was cached, what was left out, and why.

    Such as "sent 1,204 of 5,500 tokens · 1,000 of 1,210 from the cache · all 12 pieces in full".
    """
    parts = [_describe_sent(envelope, spent)]
    if spent.input:
        parts.append(_describe_cached(spent, report))
    parts.append(_describe_lowered(envelope))
    if spent.money:
        parts.append(f"${spent.money:.4f}")
    return " · ".join(parts)


def _describe_sent(envelope: Envelope, spent: TurnCost) -> str:
    tokens = f"{envelope.tokens:,}"
    if envelope.room:
        tokens += f" of {envelope.room:,}"
    if spent.steps > 1:
        return f"{spent.steps} requests, the last of {tokens} tokens"
    return f"sent {tokens} tokens"


def _describe_cached(spent: TurnCost, report: TurnReport) -> str:
    """How much a cache had, and why it had no more where an earlier request did not go on."""
    cached = "none of it cached"
    if spent.cached:
        cached = f"{spent.cached:,} of {spent.input:,} from the cache"
    if report.continues or report.parting is None:
        return cached
    if report.cut is not None:  # the line names the cut further on
        return cached
    return f"{cached} ({report.parting.cause})"


def _describe_lowered(envelope: Envelope) -> str:
    """How many segments are not sent in full, and the reason of the cut that lowered them.

    A file that stands above already is only named again. That is nothing lost, so it is told apart.
    """
    counts = Counter(_name_lowering(entry, envelope.ledger) for entry in envelope.entries)
    total = count_noun(len(envelope.entries), "piece")
    words = [f"{counts[word]:,} {word}" for word in _LOWERINGS if counts[word]]
    if not counts["shortened"] and not counts["left out"]:
        in_full = f"all {total} in full"
        if words:
            in_full += f" ({words[0]})"
        return in_full
    reason = ""
    if envelope.ledger.cuts:
        last_cut = envelope.ledger.cuts[-1]
        reason = f"cut {last_cut.number}: {last_cut.reason}; "
    return f"of {total} {', '.join(words)} ({reason}/why)"


_LOWERINGS = ("not repeated", "shortened", "left out")


def _name_lowering(entry: Entry, ledger: Ledger) -> str:
    """What became of a segment, in the words of the line after an answer; "" if it is sent in full."""
    if entry.form is Form.OMITTED:
        return "left out"
    line = ledger.lines.get(entry.ref)
    if line is not None and line.reference:
        return "not repeated"
    if entry.form is not Form.FULL:
        return "shortened"
    return ""


def _describe_size(manifest: Manifest) -> str:
    """Such as "1,204 of 5,500 tokens (estimated) in 12 pieces: 10 full, 2 stub"."""
    tokens = f"{manifest.tokens:,}"
    if manifest.room is not None:
        tokens += f" of {manifest.room:,}"
    basis = "" if manifest.exact else f" ({manifest.basis})"
    return f"{tokens} tokens{basis} in {len(manifest.rows)} pieces: {_count_forms(manifest.rows)}"


def _describe_limits(envelope: Envelope, budget: Budget, prefer: Preference) -> str:
    head_tokens = envelope.tokens - sum(entry.tokens for entry in envelope.entries)
    fixed = head_tokens + count_fixed(envelope.entries)
    cut_limits = derive_limits(budget, envelope.head, envelope.entries, fixed=fixed, prefer=prefer)
    reserve = budget.window - cut_limits.room
    return (
        f"window {budget.window:,}, {reserve:,} of it for the answer; "
        f"a cut is due above {cut_limits.trigger:,} and goes down to {cut_limits.target:,}"
    )


def _describe_cuts(envelope: Envelope) -> str:
    cuts = envelope.ledger.cuts
    if not cuts:
        return "no cut so far"
    return f"{count_noun(len(cuts), 'cut')}; the last, {describe_cut(cuts[-1])}"


def _count_forms(rows: Iterable[ManifestRow]) -> str:
    """How many rows have each form, such as "3 full, 1 omitted"."""
    counts = Counter(row.form for row in rows)
    words = [f"{counts[form]} {form.value}" for form in reversed(Form) if counts[form]]
    return ", ".join(words) or "none"


def reasons_table(rows: Sequence[ManifestRow], *, width: int) -> str:
    """One line for each segment and each digest: its key, where it stands, in which form, and why.

    A line that is wider than the screen is shortened at its end, where the reason stands.
    """
    table = [("key", "what", "where", "form", "tokens", "why"), *(_cells(row) for row in join_folds(rows))]
    widths = [max(len(cells[at]) for cells in table) for at in range(5)]
    lines = []
    for cells in table:
        texts = [cell.ljust(column) for cell, column in zip(cells[:4], widths, strict=False)]
        line = "  ".join([*texts, cells[4].rjust(widths[4]), cells[5]])
        lines.append(shorten(line.rstrip(), max(width, 60)))
    return "\n".join(lines)


def _cells(row: ManifestRow) -> tuple[str, str, str, str, str, str]:
    what = ""
    if row.what != row.key:
        what = shorten(row.what, WHAT_WIDTH)
    return shorten(row.key, KEY_WIDTH), what, row.layer.value, row.form.value, f"{row.tokens:,}", row.why


def segment_reason(row: ManifestRow, text: str) -> str:
    """One segment: why it stands as it does, in a sentence; its place; and how it begins."""
    lines = [
        describe_row(row),
        f"{row.what}: {row.layer.value}, {row.form.value}, {row.tokens:,} tokens",
    ]
    if row.recall:
        lines.append(f"/recall {row.recall} shows it in full")
    lines.append(shorten(" ".join(text.split()), 200))
    return "\n".join(lines)


def spending_text(last: TurnCost, cost: CountedCost, next_cost: str) -> str:
    """What the last turn and the whole conversation took, and what the next request costs."""
    whole = f"whole conversation: {_describe_spent(cost.spent)}"
    if cost.uncounted:
        noun = "turn was" if cost.uncounted == 1 else "turns were"
        whole += f" ({cost.uncounted:,} earlier {noun} not counted)"
    lines = [f"last turn: {_describe_spent(last)}", whole]
    if next_cost:
        lines.append(next_cost)
    return "\n".join(lines)


def _describe_spent(spent: TurnCost) -> str:
    """Such as "3 calls, 5,000 tokens read (80% from the cache), 120 written, $0.0100 (prices of …)"."""
    if not spent.steps:
        return "nothing"
    read = f"{spent.input:,} tokens read"
    if spent.input:
        read += f" ({spent.cached / spent.input:.0%} from the cache)"
    money = "no price is known" if spent.money is None else f"${spent.money:.4f} (prices of {AS_OF})"
    return f"{count_noun(spent.steps, 'call')}, {read}, {spent.output:,} written, {money}"
