"""The tests: one file a promise in `promises`, and what they share in `session`."""
