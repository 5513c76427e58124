"""Attacks of a malicious server, by what they read rows from."""
