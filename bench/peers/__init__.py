"""The libraries that lamina is compared with, each run in an environment of its own.

Read `catalogue.py` first: which peers there are and how each is configured. `policies.py` is what the lab
calls, `process.py` the pipe to a peer, `workers/` what runs at its other end. Nothing of a peer is ever
imported here.
"""
