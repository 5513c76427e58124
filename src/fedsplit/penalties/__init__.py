"""Penalties: convex terms that the server adds to F."""
