"""Key-value engines that crash or interleave on purpose."""
