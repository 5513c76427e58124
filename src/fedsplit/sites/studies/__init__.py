"""Studies: what a coordinator proposes, and what an owner approves."""
