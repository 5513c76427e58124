"""The same questions, asked of clients in other processes and on other machines."""
