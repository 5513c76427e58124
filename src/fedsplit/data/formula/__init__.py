"""Formulas: from a text in R's language to the columns of a design."""
