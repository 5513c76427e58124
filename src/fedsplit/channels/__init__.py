"""Clients that answer in other processes, or on other machines: who is asked, and who is absent."""
