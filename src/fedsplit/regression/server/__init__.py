"""What the server of a fit does: agree, run the rounds, infer."""
