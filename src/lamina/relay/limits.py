"""How large a request may be, and how long each step may take.

What depends on the machine and its models is a setting: `body_bytes`, `first_byte_seconds`,
`retry_seconds` and `drain_seconds`. The rest is here. It guards the gateway against broken and hostile
clients and servers.
"""

from __future__ import annotations

UNPACKED_BODIES = 2
"""How many times `body_bytes` a packed body may have when it is unpacked."""

HELD_BODIES = 4
"""How many times `body_bytes` all large bodies may have that one process holds at a time. Others wait."""

HEADER_BYTES = 64 << 10
"""Bytes of all headers of a request. uvicorn would read any number."""

DEPTH = 64
"""Levels of nesting. The client chooses how deep a value is, and decoders end the process far below."""

TURNS = 10_000
"""Messages of a request."""

TOOLS = 512
"""Tools of a request. Each is read anew where the list differs from the last one."""

VALUES = 100_000
"""Fields of objects and items of lists, at every depth: 200,000 in one message took a minute of CPU."""

CONNECTIONS = 1_000
"""Open connections of one process. Each may have another one to an upstream (`server._allow_open_files`)."""

PIPELINED = 16
"""Requests of one connection that wait for an answer. uvicorn reads on after each answer, without a limit."""

REQUESTS = 256
"""Requests of one workspace at a time, so that it leaves room for the others."""

HEADER_SECONDS = 10.0
"""For a client to send its headers. uvicorn would wait for ever."""

BODY_SECONDS = 60.0
"""For a client to send its body, and for a large body to wait until there is room for it."""

CLIENT_SECONDS = 60.0
"""For a client to take a piece of an answer."""

CONNECT_SECONDS = 10.0
"""For a connection to an upstream."""

IDLE_SECONDS = 300.0
"""Without a byte of an answer that has begun. A model may think for minutes without a word."""

KEEP_ALIVE_SECONDS = 10.0
"""After which a silent event stream gets a comment: proxies and clients end connections that are idle."""

STORE_SECONDS = 5.0
"""For a store to answer. A conversation that was cut cannot go on without it."""

NOTICE_SECONDS = 3.0
"""That a public gateway stays open after SIGTERM, so that a load balancer sees that `/readyz` says 503."""
