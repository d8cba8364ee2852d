"""Explains why a prefix cache missed. Start in `differences`."""

from lamina.diagnose.differences import diff
from lamina.diagnose.values import CAUSES, Difference

__all__ = ["CAUSES", "Difference", "diff"]
