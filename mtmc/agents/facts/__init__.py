"""facts: what is known of a version, derived from what was found of it, and printed for whoever reads it."""
