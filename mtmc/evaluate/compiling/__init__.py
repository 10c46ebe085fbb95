"""compiling: every kernel that a forward launches, compiled for a target that need not be there."""
