"""A new job's pieces become a graph, each node of it with the recorded node it comes from."""
