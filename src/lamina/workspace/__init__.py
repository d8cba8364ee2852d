"""The door to the machine: files below one folder, web pages, documents. Start reading in `workspace`."""

from typing import TYPE_CHECKING

from lamina._lazy_names import name_lazily

if TYPE_CHECKING:
    from lamina.workspace.fetch import FetchLimits
    from lamina.workspace.workspace import FolderItem, Workspace

__all__ = [
    "FetchLimits",
    "FolderItem",
    "Workspace",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = name_lazily(
        __name__,
        {
            "lamina.workspace.fetch": "FetchLimits",
            "lamina.workspace.workspace": "FolderItem Workspace",
        },
    )
