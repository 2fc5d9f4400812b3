"""Small files beside the registry that spare the next command some work: replaced whole, and never synced."""

from __future__ import annotations

import os


def replace(path: str, text: str) -> None:
    """Whoever reads sees the old text or the new one. Raises OSError; then it is the old one still."""
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
    os.rename(temporary, path)
