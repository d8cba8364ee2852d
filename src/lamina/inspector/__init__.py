"""The inspector: what a model saw in each request, what it did not see, and why.

    sessions ──▶ records ──▶ views ──▶ pages ──▶ `gateway.inspection`, or one file
                 every request  JSON   HTTP
                 as it was sent

Everything is shown from a record. The log of a client is read as one (`logs`). `views` turns requests into
JSON, and the page in `static` draws that JSON. Nothing is sent anywhere.
"""

from typing import TYPE_CHECKING

from lamina._lazy_names import name_lazily

if TYPE_CHECKING:
    from lamina.inspector.sessions import Sessions
    from lamina.inspector.views import Inspector

__all__ = [
    "Inspector",
    "Sessions",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = name_lazily(
        __name__,
        {
            "lamina.inspector.sessions": "Sessions",
            "lamina.inspector.views": "Inspector",
        },
    )
