"""What a user gets from a fit."""
