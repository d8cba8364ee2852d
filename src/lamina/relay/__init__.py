"""The life of one call, for every door: find its conversation, fit it, keep it, send it, relay the answer.

It knows no socket and no SDK. A door gives it a request whose body was read, and an `upstream_port` to send
with. Start reading in `exchange`, which shows the way of a call on one page:

    exchange ──▶ fit ──▶ upstream_answer ──▶ answer ──▶ recording

- `relay` puts the parts together. `config` has the settings, and `limits` what nobody sets.
- `client_request` has the head of a request. `security` says who may ask. `routes`, `upstreams`, `profiles`
  say where a request goes and what that server cannot take. `refusals` says how an error looks in each API.
- `identity` and `conversation_index` find out which conversation a request continues. `store_access` has
  every call of the store, and `saving` says when it is called.
- `fit` decides what leaves. `policies` chooses how it is fitted, `sizes` whether it has to be, and `fit_call`
  runs `fit_request`.
- `upstream_answer` sends it. `answer` passes the answer on, without what the model recalls; `stream` writes
  it, and `usage` reads what it reports.
- `sent_calls` mends a request that was refused, sends one on that recalled something, and keeps what the next
  one depends on. `recording` keeps what left and what came back. `misses` says why a cache missed, and
  `journal` is the log.
"""
