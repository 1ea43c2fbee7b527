"""A PyTorch module, whoever wrote it, becomes the operators that it runs."""
