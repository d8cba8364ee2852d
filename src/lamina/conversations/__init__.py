"""What lamina remembers between two requests, and what it records of them: one room for every door.

- `recognise` says which conversation a request continues or forks, from its `request_digests`.
- `events` reports to an application what happened to a request. `remedies` says what to do if an API refuses
  it.
- `recall_loop` answers recalls inside a call, and `recall_filter` leaves them out of what the client sees: of
  whole answers with `recall_answers`, of streams with `stream_filters`.
- `store` has the one layout of conversations in a store, and `shelf` loads and saves them. `record` is what
  was sent and what came back: every door notes it with a `recorder`, `record_writer` makes its records, with
  `bodies`; `recorded_log`, `answer_bodies` and `costs` read them. `lost_caches` says what a cache
  lost.
- `listing`, `exporting`, `deleting`, `erasing` and `retention` are behind `lamina log` and
  `lamina store`. `erasing` has the table of places where a message stands, and `erased_records` what
  stands there instead.

The doors are above: `lamina.wrapped`, `lamina.sessions`, `lamina.gateway`, `lamina.adapters`.
"""

from typing import TYPE_CHECKING

from lamina._lazy_names import name_lazily

if TYPE_CHECKING:
    from lamina.conversations.deleting import delete_conversation, delete_conversations, delete_workspace
    from lamina.conversations.erasing import ErasedMessage, FoundMessage, delete_message, find_messages
    from lamina.conversations.exporting import export_conversation, import_conversation
    from lamina.conversations.listing import ListedTalk, list_client_names, list_talks
    from lamina.conversations.retention import Pruned, prune

__all__ = [
    "ErasedMessage",
    "FoundMessage",
    "ListedTalk",
    "Pruned",
    "delete_conversation",
    "delete_conversations",
    "delete_message",
    "delete_workspace",
    "export_conversation",
    "find_messages",
    "import_conversation",
    "list_client_names",
    "list_talks",
    "prune",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = name_lazily(
        __name__,
        {
            "lamina.conversations.deleting": "delete_conversation delete_conversations delete_workspace",
            "lamina.conversations.erasing": "ErasedMessage FoundMessage delete_message find_messages",
            "lamina.conversations.exporting": "export_conversation import_conversation",
            "lamina.conversations.listing": "ListedTalk list_client_names list_talks",
            "lamina.conversations.retention": "Pruned prune",
        },
    )
