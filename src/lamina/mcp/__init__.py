"""What lamina keeps, for any client that speaks the Model Context Protocol: recall, explain, search.

- `library` reads sessions, and what the other doors have recorded, from one store, and answers in text.
- `tools` puts it behind three tools. An error of lamina's is a result that says what was wrong.
- `http` guards the server on a socket as the gateway is guarded: host names, origins and an access token.

It needs the extra `mcp`. Nothing here writes to a store.
"""
