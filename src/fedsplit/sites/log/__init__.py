"""The audit log of a site, and how it is checked."""
