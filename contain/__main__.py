"""``python -m contain``."""

from __future__ import annotations

import sys

from contain.cli.main import main

sys.exit(main())
