"""Context first, question last: the order in which a model answers best, and the words that say so.

Functions over text only.
"""

from __future__ import annotations

QUESTION = "[The user's question]: "
"""What stands before the question where it is repeated."""


def with_question(context: str, question: str) -> str:
    """The context, then the question; a question that stands at its end already is not said twice."""
    if not context.strip():
        return question
    if not question.strip() or context.rstrip().endswith(question.strip()):
        return context
    return f"{context.rstrip()}\n\n{QUESTION}{question}"
