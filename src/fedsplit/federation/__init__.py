"""Analyses between organisations: messages, keys, and what carries them."""
