"""What travels between Flower's own programs: messages as records of bytes."""
