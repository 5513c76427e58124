"""Convex terms that the server adds to the sum of the clients' costs."""
