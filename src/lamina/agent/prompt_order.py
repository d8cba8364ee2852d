"""Context first, question last: the order in which a model answers best, and the words that say so.

Functions over text only.
"""

from __future__ import annotations

from lamina.core.text.characters import WHITE_SPACE, is_blank

QUESTION = "[The user's question]: "
"""What is written before the question where it is repeated."""


def with_question(context: str, question: str) -> str:
    """The context, then the question. A question that already ends the context is not repeated."""
    if is_blank(context):
        return question
    trimmed = context.rstrip(WHITE_SPACE)
    if is_blank(question) or trimmed.endswith(question.strip(WHITE_SPACE)):
        return context
    return f"{trimmed}\n\n{QUESTION}{question}"
