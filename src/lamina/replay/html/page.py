"""The account as one page: from top to bottom, what was paid, what each policy costs, and session by session.

The page asks for nothing: styles and script are in it, drawings are SVG, and its own policy forbids every
request and every script but the one it carries. Without the script all of it can be read; with it tables
can be sorted and the colours chosen. The figures are those of the JSON file, from
`lamina.replay.account_table`.
"""

from __future__ import annotations

import base64
import hashlib
from importlib import resources

from lamina.replay.account_table import totals, whole
from lamina.replay.html.markup import Safe, join, tag
from lamina.replay.html.policies import policies
from lamina.replay.html.recorded import damaged, recorded
from lamina.replay.html.sessions import courses, sessions
from lamina.replay.values import ReplayAccount


def page(account: ReplayAccount, *, title: str = "What these sessions cost") -> str:
    """A whole document."""
    style, script = _file("report.css"), _file("report.js")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(style, script)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Safe(style)),
    )
    body = tag("body", _top(account, title), tag("main", *_sections(account)), tag("script", Safe(script)))
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _sections(account: ReplayAccount) -> list[Safe]:
    sums = totals(account.outcomes)
    made = [
        recorded(account),
        *policies(account, sums),
        courses(account),
        sessions(account),
        damaged(account),
    ]
    return [section for section in made if section]


def _top(account: ReplayAccount, title: str) -> Safe:
    outcomes = account.outcomes
    traces = {each.trace for each in outcomes} | {each.trace for each in account.reported}
    policies_seen = dict.fromkeys(each.policy for each in outcomes)
    calls = {each.trace: each.calls for each in account.reported}
    calls |= {each.trace: each.calls for each in outcomes}
    facts = {"sessions": len(traces), "calls": sum(calls.values()), "policies": len(policies_seen)}
    shown = join(
        tag("div", tag("dt", name), tag("dd", whole(number), data_name=name, data_value=number))
        for name, number in facts.items()
    )
    day = f"Prices and cache rules as of {account.as_of}. " if account.as_of else ""
    note = (
        f"{day}Every call of every session was sent again, to simulated caches only. "
        "Cost is input, in tokens at full price: what a cache gives counts for less, what it takes for more."
    )
    button = tag("button", "light or dark", id="theme", type="button", hidden=True)
    return join(
        [
            tag("header", tag("h1", title), button),
            tag("dl", shown, class_="key"),
            tag("p", note, class_="note"),
        ]
    )


def _policy(style: str, script: str) -> str:
    """What the browser may do for this page: show it, and run the one script that it came with."""
    return f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; form-action 'none'"


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")
