"""The Python API: ``run``, ``start``, and their asynchronous sisters ``arun`` and ``astart``.

Import these from ``contain``; docs/API.md is their description. All jobs of a process are carried by one thread and
cloned by one keeper, so every function here may be called from any thread, task or forked child.
"""
