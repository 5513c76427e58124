"""Regression across silos: from agreed columns to a proved table."""
