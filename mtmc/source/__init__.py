"""source: what stands in the file of a version without a plan, by its syntax tree."""
