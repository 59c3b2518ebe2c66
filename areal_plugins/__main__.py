"""`python -m areal_plugins`."""

from __future__ import annotations

import sys

from areal_plugins.cli import main

if __name__ == "__main__":
    sys.exit(main())
