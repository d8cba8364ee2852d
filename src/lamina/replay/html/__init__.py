"""The account as one page of HTML that needs nothing but itself; `page.py` is where to begin."""

from __future__ import annotations

from lamina.replay.html.page import page

__all__ = ["page"]
