"""As in obsidian-copilot: notes are attached to questions, and earlier ones stand in a library.

    python examples/layered_notes.py

A note that stands in full is not sent again: later turns refer to it.
`docs/from-obsidian-copilot.md` says more.
"""

from __future__ import annotations

from lamina import Policy
from lamina.blocking import Session
from lamina.core import Layout, text_of
from lamina.segments import note
from lamina.stores import MemoryStore

SPEC = "# Auth\n\nTokens last an hour.\n\n# Limits\n\nAt most 20 requests a minute.\n"
ENDPOINTS = "# Endpoints\n\n/parcels and /labels.\n"
TURNS = (
    ("Summarise this.", (note("project-spec.md", SPEC),)),
    (
        "Which endpoints are there?",
        (note("project-spec.md", SPEC), note("docs/api-docs.md", ENDPOINTS)),
    ),
    ("Explain the auth flow.", (note("project-spec.md", SPEC),)),
)


def main() -> None:
    for name, layout in (("in place", Layout()), ("with a library", Layout(library="hoisted"))):
        print(f"--- {name}")
        show_conversation(layout)


def show_conversation(layout: Layout) -> None:
    """Three turns, and what each of them sends."""
    with Session.open(MemoryStore(), "notes", model="gpt-5", policy=Policy(layout=layout)) as session:
        for question, notes in TURNS:
            envelope = session.ask(question, attach=list(notes))
            print(f"{question} (continues the last request: {session.report().continues})")
            for entry in envelope.sent:
                first_line = text_of(entry.parts).strip().partition("\n")[0]
                print(f"    {entry.layer:8} {entry.form:5} {first_line}")
            session.record(f"About: {question}")


if __name__ == "__main__":
    main()
