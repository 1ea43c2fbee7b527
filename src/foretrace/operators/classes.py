"""`OperatorClass`: the classes of work that a performance engineer thinks in."""

from __future__ import annotations

from enum import StrEnum


class OperatorClass(StrEnum):
    """What a kernel, or an operator on the host, does."""

    GEMM = "gemm"  # matrix products, matrix-vector products, and their split-K reductions
    ATTENTION = "attention"  # fused: products, softmax and dropout in one kernel
    CONVOLUTION = "convolution"  # also when a matrix product or a transform does it
    NORMALISATION = "normalisation"
    SOFTMAX = "softmax"
    LOSS = "loss"  # cross entropy and other criteria
    ELEMENTWISE = "elementwise"  # activations, dropout, random numbers, quantisation
    REDUCTION = "reduction"  # also pooling and prefix sums
    EMBEDDING = "embedding"  # rows of a table by index, pooled or not, and their gradients
    INDEXING = "indexing"  # gather, scatter, sort, top-k, unique
    OPTIMIZER = "optimizer"  # parameter updates, gradient clipping and scaling
    COPY = "copy"  # bytes moved, cast, transposed, concatenated, filled
    COLLECTIVE = "collective"  # kernels of a communication library
    OTHER = "other"
