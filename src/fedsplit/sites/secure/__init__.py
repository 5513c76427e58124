"""Secure sums at a site: its keys of a study, its masks, and the ledger of what it has sent."""
