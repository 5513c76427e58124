"""The paper's experiments: their figures, and what the paper claims of them."""
