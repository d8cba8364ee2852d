"""The inspector: what a model saw in each request, what it did not see, and why.

    sessions ──▶ building ──▶ views ──▶ pages ──▶ server, or one file
    what was     every call    JSON      HTTP
    recorded     as it was sent

Calls that lamina recorded are shown from its record. Those of another log are built from the messages
before them, which is exact because a build is pure. `views` turns them into JSON, and the page in `static`
draws that JSON. Nothing is sent anywhere.
"""

from typing import TYPE_CHECKING

from lamina._lazy_names import name_lazily

if TYPE_CHECKING:
    from lamina.inspector.asgi import make_app
    from lamina.inspector.sessions import Sessions
    from lamina.inspector.views import Inspector

__all__ = [
    "Inspector",
    "Sessions",
    "make_app",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = name_lazily(
        __name__,
        {
            "lamina.inspector.asgi": "make_app",
            "lamina.inspector.sessions": "Sessions",
            "lamina.inspector.views": "Inspector",
        },
    )
