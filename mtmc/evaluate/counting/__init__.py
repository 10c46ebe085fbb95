"""counting: the bytes and flops that a forward really moves and does, launch by launch, without running it."""
