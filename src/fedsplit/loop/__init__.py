"""The loop of a run: when it stops, what it records, what it proves."""
