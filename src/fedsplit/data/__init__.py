"""Clients' data: files, tables, formulas and categories."""
