"""Floor 1: hardware as data: chips, hosts, network tiers; presets with a source per number."""
