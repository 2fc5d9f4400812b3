"""The Darwin backend. From source: it has run against a fake XNU only, never on a Mac (docs/DARWIN.md)."""
