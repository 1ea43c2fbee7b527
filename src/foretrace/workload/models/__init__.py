"""Models as data: their shapes, parameters, FLOPs and bytes, without a plan or a machine."""
