"""The pipeline, pure: no I/O, clock, randomness, globals or model call. Start reading in `build`.

What users need besides the names of `lamina` itself is exported here.
"""

from typing import TYPE_CHECKING

from lamina._lazy_names import name_lazily

if TYPE_CHECKING:
    from lamina.core.explanation import LeftOut, Manifest, ManifestRow
    from lamina.core.kinds import HIGH, KINDS, LOW, Kind, Kinds
    from lamina.core.laws import audit
    from lamina.core.layout import Cap, Filter, Layout
    from lamina.core.orders import Move, Order, OrderView
    from lamina.core.repair import Repairs
    from lamina.core.tokens import CHARS4, RFC, Count, Counter
    from lamina.core.values import Cut, Document, Image, Part, Raw, Text, Thinking, ToolCall, ToolResult
    from lamina.core.wording import Wording, text_of

__all__ = [
    "CHARS4",
    "HIGH",
    "KINDS",
    "LOW",
    "RFC",
    "Cap",
    "Count",
    "Counter",
    "Cut",
    "Document",
    "Filter",
    "Image",
    "Kind",
    "Kinds",
    "Layout",
    "LeftOut",
    "Manifest",
    "ManifestRow",
    "Move",
    "Order",
    "OrderView",
    "Part",
    "Raw",
    "Repairs",
    "Text",
    "Thinking",
    "ToolCall",
    "ToolResult",
    "Wording",
    "audit",
    "text_of",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = name_lazily(
        __name__,
        {
            "lamina.core.values": "Cut Document Image Part Raw Text Thinking ToolCall ToolResult",
            "lamina.core.kinds": "HIGH KINDS LOW Kind Kinds",
            "lamina.core.layout": "Cap Filter Layout",
            "lamina.core.repair": "Repairs",
            "lamina.core.wording": "Wording text_of",
            "lamina.core.tokens": "CHARS4 RFC Count Counter",
            "lamina.core.explanation": "LeftOut Manifest ManifestRow",
            "lamina.core.orders": "Move Order OrderView",
            "lamina.core.laws": "audit",
        },
    )
