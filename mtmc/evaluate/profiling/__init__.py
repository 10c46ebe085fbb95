"""profiling: what a version's kernels do on the device, by hardware counters or by their times."""
