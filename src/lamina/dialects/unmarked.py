"""Names that other dialects still import from here. Their home is `same_objects`."""

from __future__ import annotations

from lamina.dialects.same_objects import changed_in, without

__all__ = ["changed_in", "without"]
