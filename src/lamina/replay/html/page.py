"""The account as one page: from top to bottom, what was paid, what each policy costs, and session by session.

The page asks for nothing: styles and script are in it, drawings are SVG, and its own policy forbids every
request and every script but the one it carries. Without the script all of it can be read; with it tables
can be sorted and the colours chosen. The figures are those of the JSON file, from
`lamina.replay.account_sums`.
"""

from __future__ import annotations

import base64
import hashlib
from importlib import resources

from lamina.replay.account_sums import sum_outcomes
from lamina.replay.account_table import format_whole
from lamina.replay.html.markup import Safe, join, tag
from lamina.replay.html.policies import policy_sections
from lamina.replay.html.recorded import damaged_section, recorded_section
from lamina.replay.html.sessions import courses_section, sessions_section
from lamina.replay.values import ReplayAccount


def render_page(account: ReplayAccount, *, title: str = "What these sessions cost") -> str:
    """A whole document."""
    style = _read_asset("report.css")
    script = _read_asset("report.js")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_security_policy(style, script)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Safe(style)),
    )
    body = tag("body", _header(account, title), tag("main", *_sections(account)), tag("script", Safe(script)))
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _sections(account: ReplayAccount) -> list[Safe]:
    sections = [
        recorded_section(account),
        *policy_sections(account, sum_outcomes(account.outcomes)),
        courses_section(account),
        sessions_section(account),
        damaged_section(account),
    ]
    return [section for section in sections if section]


def _header(account: ReplayAccount, title: str) -> Safe:
    figures = _key_figures(account)
    key = join(
        tag("div", tag("dt", name), tag("dd", format_whole(number), data_name=name, data_value=number))
        for name, number in figures.items()
    )
    note = (
        "Every call of every session was sent again, to simulated caches only. "
        "Cost is input, in tokens at full price: what a cache gives counts for less, what it takes for more."
    )
    if account.as_of:
        note = f"Prices and cache rules as of {account.as_of}. {note}"
    button = tag("button", "light or dark", id="theme", type="button", hidden=True)
    return join(
        [
            tag("header", tag("h1", title), button),
            tag("dl", key, class_="key"),
            tag("p", note, class_="note"),
        ]
    )


def _key_figures(account: ReplayAccount) -> dict[str, int]:
    calls_by_trace = {report.trace: report.calls for report in account.reported}
    calls_by_trace |= {outcome.trace: outcome.calls for outcome in account.outcomes}
    policies = {outcome.policy for outcome in account.outcomes}
    return {
        "sessions": len(calls_by_trace),
        "calls": sum(calls_by_trace.values()),
        "policies": len(policies),
    }


def _security_policy(style: str, script: str) -> str:
    """What the browser may do for this page: show it, and run the one script that it came with."""
    return f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; form-action 'none'"


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _read_asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")
