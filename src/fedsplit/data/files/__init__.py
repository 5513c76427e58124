"""Files of clients' data: one module per kind of file."""
