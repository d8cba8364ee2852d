"""Why a prefix cache missed. Start reading in `differences`."""

from lamina.diagnose.differences import part
from lamina.diagnose.values import CAUSES, Parting

__all__ = ["CAUSES", "Parting", "part"]
