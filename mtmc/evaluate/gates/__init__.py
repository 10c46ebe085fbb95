"""gates: what a version must pass before it has a runtime: audit, build, check. See `mtmc.evaluate.lab` for their order."""
