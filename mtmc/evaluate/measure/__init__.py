"""Measuring on a device: the oracle (trusted, one per GPU), the subject (a candidate's process), the lane between them."""
