"""What needs no simulation: what the records say was paid, and where caches were lost."""

from __future__ import annotations

from lamina.replay.account_table import PAID_COLUMNS, losses, paid, reasons, whole
from lamina.replay.html.markup import Safe, tag
from lamina.replay.html.tables import cell, folded, framed, head, table, words
from lamina.replay.values import ReplayAccount

LISTED = 200
"""Lost caches, and damaged lines, that the page names; the JSON file has all."""


def recorded(account: ReplayAccount) -> Safe:
    rows = paid(account.reported)
    if not rows:
        note = "The records hold no usage, so what these sessions took when they ran is not known."
        return tag("section", tag("h2", "What the records say"), tag("p", note, class_="note"))
    return tag(
        "section",
        tag("h2", "What the records say"),
        tag("p", "Tokens and prices as the providers reported them when the sessions ran."),
        table(PAID_COLUMNS, rows, about="paid", key="model", caption="By model"),
        *_lost(account),
    )


def _lost(account: ReplayAccount) -> list[Safe]:
    found = losses(account.reported)
    if not found:
        return [tag("p", "No call read less than half of what the call before it had sent.")]
    why = [
        tag(
            "tr", cell("why", text), cell("times", times, whole), cell("tokens", tokens, whole), data_key=text
        )
        for text, times, tokens in reasons(found)
    ]
    each = [
        tag(
            "tr",
            cell("trace", loss.trace),
            cell("call", loss.call, whole),
            cell("tokens", loss.tokens, whole),
            words("why", loss.why),
        )
        for loss in found[:LISTED]
    ]
    heads = [head("session", figure=False), head("call"), head("paid again"), head("why", figure=False)]
    return [
        tag("h2", "Where caches were lost, and why"),
        tag("p", "A cache is lost where a call read less than half of what the call before it had sent."),
        framed(
            [head("why", figure=False), head("times"), head("tokens paid again")],
            why,
            about="losses",
            caption="By reason",
        ),
        folded(_of("Call by call", len(each), len(found)), framed(heads, each, about="lost")),
    ]


def damaged(account: ReplayAccount) -> Safe:
    """What could not be read; nothing where all could."""
    found = account.damaged
    if not found:
        return Safe("")
    rows = [
        tag("tr", cell("place", each.place), words("reason", each.reason), data_key=each.place)
        for each in found[:LISTED]
    ]
    made = framed([head("place", figure=False), head("reason", figure=False)], rows, about="damaged")
    return tag(
        "section",
        tag("h2", "What could not be read"),
        folded(_of("Damaged, and skipped", len(rows), len(found)), made),
    )


def _of(what: str, shown: int, all_of_them: int) -> str:
    return (
        f"{what} ({shown:,})" if shown == all_of_them else f"{what} (the first {shown:,} of {all_of_them:,})"
    )
