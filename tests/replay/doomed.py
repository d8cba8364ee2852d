"""A call that kills its process: for workers, which import this module and little else."""

from __future__ import annotations

import os
import signal
from pathlib import Path


def double_unless_doomed(item: tuple[int, str]) -> int:
    """Twice the number. A file that is named is removed, and the process dies; "always" kills every time."""
    number, doom = item
    if doom == "always":
        os.kill(os.getpid(), signal.SIGKILL)
    if doom and Path(doom).exists():
        Path(doom).unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number
