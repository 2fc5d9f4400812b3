"""What works on this machine, at which tier, and what would have to change: tried, and not guessed from settings."""
