"""Tests of the Darwin backend: on a Mac against the system, elsewhere against the fake XNU in ``fake/``."""
