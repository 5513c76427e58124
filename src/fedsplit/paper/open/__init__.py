"""What the paper leaves open (its Discussion): one file per question, with a figure and claims."""
