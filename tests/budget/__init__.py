"""Tests of the budget's pure half: the arbiter, the policy and replay."""
