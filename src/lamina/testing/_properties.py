"""What `lamina.testing` uses of Hypothesis; without it, the error says what to install."""

from __future__ import annotations

try:
    from hypothesis import event, strategies
except ModuleNotFoundError as error:
    if error.name != "hypothesis":
        raise
    raise ModuleNotFoundError(
        "this part of lamina.testing needs hypothesis: install lamina-context[testing]", name="hypothesis"
    ) from error

__all__ = ["event", "strategies"]
