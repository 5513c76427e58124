"""A study by files: questions and answers that travel by mail, a shared folder or a USB stick."""
