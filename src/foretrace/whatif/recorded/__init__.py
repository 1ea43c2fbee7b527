"""A recording as a program: pieces of blocks in the order in which each rank issues them."""
