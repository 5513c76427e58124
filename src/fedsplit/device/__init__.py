"""The clients' rows on an accelerator: one more implementation of the oracle."""
