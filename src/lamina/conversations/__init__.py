"""What lamina remembers between two requests, and what it records of them: one room for every door.

- `recognise` says which conversation a request continues or forks, from its `request_digests`.
- `conversation` and `conversations` are what a wrapped client remembers. `pending_call` takes a request to
  the API and back, `recall_loop` with its neighbours answers recalls inside a call, and `events` reports.
- `store` has the one layout of conversations in a store, `record` with `bodies` what was sent and what came
  back. `recorded_log`, `answer_bodies` and `costs` read the record.
- `listing`, `exporting`, `deleting`, `erasing` and `retention` are behind `lamina conversations`.

The doors are above: `lamina.wrapped`, `lamina.sessions`, `lamina.gateway`, `lamina.adapters`.
"""
