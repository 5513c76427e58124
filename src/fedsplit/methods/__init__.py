"""Methods: one file a method."""
