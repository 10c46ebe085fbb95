"""pool: worker processes that candidates run in: warm, limited in time, memory and output, replaced when they die."""
