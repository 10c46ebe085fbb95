"""loading: from a task and a text to modules, weights and inputs, the same way for a reference and a candidate."""
