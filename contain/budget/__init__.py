"""What the machine can carry, and who may use it now. ``docs/BUDGET.md`` is the model for a reader."""
