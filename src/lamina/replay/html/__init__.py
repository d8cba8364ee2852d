"""The account as one page of HTML that needs nothing but itself. It needs the extra "report".

`page.py` collects what the page shows, `report.html` is the page, `plots.py` draws.
"""

from __future__ import annotations

try:
    from lamina.replay.html.page import render_page
except ImportError as error:
    if error.name not in ("jinja2", "markupsafe"):
        raise
    raise ImportError("the page needs Jinja: pip install 'lamina-context[report]'", name=error.name) from None

__all__ = ["render_page"]
