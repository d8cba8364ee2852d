"""The account as one page of HTML that needs nothing but itself; `page.py` is where to begin."""

from __future__ import annotations

from lamina.replay.html.page import render_page

__all__ = ["render_page"]
