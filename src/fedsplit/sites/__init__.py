"""A site between organisations: what its owner approves, what it answers, and its log."""
