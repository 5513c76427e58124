"""Which rows a site answers from."""
