"""Search over what was said, the files of a workspace and what is remembered: words, and meaning if asked.

`chunks` cuts texts by their structure, `index` ranks them, `sqlite` keeps them, `source` makes excerpts.
"""

from lamina.context.search.chunks import Chunk, chunks_of, fact, turns_of
from lamina.context.search.embedders import local_embedder, server_embedder
from lamina.context.search.index import Embedder, Hit, Index, open_index
from lamina.context.search.source import SearchLimits, answer_search_call, excerpts, search, search_tool

__all__ = [
    "Chunk",
    "Embedder",
    "Hit",
    "Index",
    "SearchLimits",
    "answer_search_call",
    "chunks_of",
    "excerpts",
    "fact",
    "local_embedder",
    "open_index",
    "search",
    "search_tool",
    "server_embedder",
    "turns_of",
]
