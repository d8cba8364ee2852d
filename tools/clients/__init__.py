"""Real coding agents from their packages, through `lamina run`, to a model that follows a script.

    client ──▶ recorder ──▶ gateway of `lamina run` ──▶ upstream

The recorder keeps what the client sent, the upstream what arrived there and what it would have refused. The
model calls the client's own shell with 20 kB of output, again and again, recalls what was cut, and the
gateway is killed meanwhile. `measures` compares both sides.
"""
