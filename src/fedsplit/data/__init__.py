"""What a user names, files, folders, frames and queries, turned into clients' data."""
