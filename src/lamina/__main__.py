"""`python -m lamina` is the command `lamina`."""

from __future__ import annotations

import sys

from lamina.cli import main

if __name__ == "__main__":
    sys.exit(main())
