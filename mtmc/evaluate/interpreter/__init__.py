"""interpreter: Triton's interpreter made to compute what a GPU computes, within the bounds of the kernel's tensors."""
