"""What lamina remembers between two requests: one room for every door.

- `recognise` says which conversation a request continues or forks, from its `request_digests`.
- `conversation` is what is remembered of one.
- `pending_call` takes a request to the API and back; `recall_loop` with its neighbours answers recalls inside
  a call, and `events` reports cuts, repairs and misses.

The doors are above: `lamina.wrapped`, `lamina.sessions`, `lamina.gateway`, `lamina.adapters`.
"""
