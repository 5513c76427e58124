"""What runs at a site: its rows, its policy, and the record of all that left."""
