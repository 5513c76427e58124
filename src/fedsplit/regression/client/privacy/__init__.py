"""Noisy sums: what bounds a row's part of them, and how much noise makes them (ε, δ)-private."""
