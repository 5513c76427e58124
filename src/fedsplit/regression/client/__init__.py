"""What a client of a fit does with its own rows."""
