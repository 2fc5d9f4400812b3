"""Timing claims, measured side by side in one run: ``python -m tests.bench``. Nothing here is a test."""
