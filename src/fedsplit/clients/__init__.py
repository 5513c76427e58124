"""Clients: one implementation of the protocol for each engine."""
