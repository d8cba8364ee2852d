"""Why a prefix cache missed. Start reading in `differences`."""

from lamina.diagnose.differences import diff
from lamina.diagnose.values import CAUSES, Difference

__all__ = ["CAUSES", "Difference", "diff"]
