"""Names that other dialects still import from here. Their homes are the modules below."""

from __future__ import annotations

from lamina.dialects.chat_extra_fields import with_beside
from lamina.dialects.extra_fields import UNREAD
from lamina.dialects.gemini_extra_fields import gemini_content, gemini_part

__all__ = ["UNREAD", "gemini_content", "gemini_part", "with_beside"]
