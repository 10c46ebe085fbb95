"""estimates: from counted traffic and the resources of the binaries to an estimated runtime (roofline, pure functions)."""
