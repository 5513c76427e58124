"""What a client refuses to answer, because it could disclose single rows."""
