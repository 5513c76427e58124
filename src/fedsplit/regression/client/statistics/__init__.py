"""The sums over rows that a regression asks for, one class each; ``known`` has the table."""
