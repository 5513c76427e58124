"""The paper's experiments, claims and figures."""
