"""Functions in a formula that depend on the rows of all clients."""
