"""measure: timing on a device: the oracle (trusted, one a GPU), the subject (a candidate's process), the worker between."""
