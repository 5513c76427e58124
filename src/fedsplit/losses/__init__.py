"""Losses: one file a loss, and what a loss is made of."""
