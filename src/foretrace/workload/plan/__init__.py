"""Plans: how work is laid over ranks and time; files, legality, groups of ranks."""
