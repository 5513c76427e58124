"""The clients that a user names, each with its data."""
