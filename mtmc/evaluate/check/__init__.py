"""check: a candidate's outputs beside the reference's, each of the two in a process of its own."""
