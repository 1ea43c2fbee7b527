"""One process stands for a rank of a world of any size: what it would issue is written down."""
