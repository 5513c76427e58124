"""Local solvers: one file a way to compute a prox."""
