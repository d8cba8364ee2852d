"""Context first, question last: the order in which a model answers best, and the words that say so.

Functions over text only.
"""

from __future__ import annotations

from lamina.core.text.characters import WHITE_SPACE, is_blank

QUESTION = "[The user's question]: "
"""What stands before the question where it is repeated."""


def with_question(context: str, question: str) -> str:
    """The context, then the question; a question that stands at its end already is not said twice."""
    if is_blank(context):
        return question
    ended = context.rstrip(WHITE_SPACE)
    if is_blank(question) or ended.endswith(question.strip(WHITE_SPACE)):
        return context
    return f"{ended}\n\n{QUESTION}{question}"
