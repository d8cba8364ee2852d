"""What needs no simulation: what the records say was paid, and where caches were lost."""

from __future__ import annotations

from lamina.replay.account_sums import CacheLoss, list_losses, sum_losses, sum_paid
from lamina.replay.account_table import PAID_COLUMNS, format_whole
from lamina.replay.html.markup import Safe, tag
from lamina.replay.html.tables import column_head, details, figure_cell, table, table_frame, text_cell
from lamina.replay.values import ReplayAccount

LISTED = 200
"""Lost caches, and damaged lines, that the page names; the JSON file has all."""


def recorded_section(account: ReplayAccount) -> Safe:
    rows = sum_paid(account.reported)
    if not rows:
        note = "The records hold no usage, so what these sessions took when they ran is not known."
        return tag("section", tag("h2", "What the records say"), tag("p", note, class_="note"))
    return tag(
        "section",
        tag("h2", "What the records say"),
        tag("p", "Tokens and prices as the providers reported them when the sessions ran."),
        table(PAID_COLUMNS, rows, about="paid", key="model", caption="By model"),
        *_losses(account),
    )


def _losses(account: ReplayAccount) -> list[Safe]:
    losses = list_losses(account.reported)
    if not losses:
        return [tag("p", "No call read less than half of what the call before it had sent.")]
    listed = losses[:LISTED]
    heads = [
        column_head("session", figure=False),
        column_head("call"),
        column_head("paid again"),
        column_head("why", figure=False),
    ]
    calls = table_frame(heads, [_loss_row(loss) for loss in listed], about="lost")
    return [
        tag("h2", "Where caches were lost, and why"),
        tag("p", "A cache is lost where a call read less than half of what the call before it had sent."),
        _reasons_table(losses),
        details(_title_with_count("Call by call", len(listed), len(losses)), calls),
    ]


def _reasons_table(losses: list[CacheLoss]) -> Safe:
    rows = [
        tag(
            "tr",
            figure_cell("why", why),
            figure_cell("times", times, format_whole),
            figure_cell("tokens", tokens, format_whole),
            data_key=why,
        )
        for why, times, tokens in sum_losses(losses)
    ]
    heads = [column_head("why", figure=False), column_head("times"), column_head("tokens paid again")]
    return table_frame(heads, rows, about="losses", caption="By reason")


def _loss_row(loss: CacheLoss) -> Safe:
    return tag(
        "tr",
        figure_cell("trace", loss.trace),
        figure_cell("call", loss.call, format_whole),
        figure_cell("tokens", loss.tokens, format_whole),
        text_cell("why", loss.why),
    )


def damaged_section(account: ReplayAccount) -> Safe:
    """What could not be read; no section if all could."""
    if not account.damaged:
        return Safe("")
    rows = [
        tag(
            "tr",
            figure_cell("place", damage.place),
            text_cell("reason", damage.reason),
            data_key=damage.place,
        )
        for damage in account.damaged[:LISTED]
    ]
    heads = [column_head("place", figure=False), column_head("reason", figure=False)]
    title = _title_with_count("Damaged, and skipped", len(rows), len(account.damaged))
    return tag(
        "section",
        tag("h2", "What could not be read"),
        details(title, table_frame(heads, rows, about="damaged")),
    )


def _title_with_count(title: str, listed: int, count: int) -> str:
    if listed == count:
        return f"{title} ({listed:,})"
    return f"{title} (the first {listed:,} of {count:,})"
