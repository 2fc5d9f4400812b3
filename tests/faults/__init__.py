"""Whoever takes part in the budget is killed, stopped and deceived, wherever that can happen."""
