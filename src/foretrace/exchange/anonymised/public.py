"""Which texts of a trace are public: PyTorch's own names and those of vendors' kernels.

A list of what is known, not of what is secret: whatever is not recognised counts as somebody's.
A C++ kernel is public only if every name in it is, so that a user's functor inside one of
PyTorch's templates is noticed.
"""

from __future__ import annotations

import re

_OPERATOR = re.compile(
    # Namespaces that PyTorch itself registers operators in.
    r"(?:aten|prims?|prim|c10|c10d|_c10d_functional(?:_autograd)?|c10d_functional|profiler|quantized"
    r"|mkldnn|onednn|inductor|rng_prims|streams|symm_mem)::[A-Za-z_]\w*(?:\.\w+)?$"
    r"|torch::(?:autograd|distributed|jit|nn)(?:::[A-Za-z_]\w*)+$"
    r"|torch\.distributed\.ddp\.reducer::\w+$"
    # Generated autograd nodes end in a number; a user's `Function` is called `NameBackward`.
    r"|[A-Z]\w*Backward\d+$"
    r"|(?:nccl|gloo|mpi|ucc|xccl|rccl):\w+(?: \d+(?:->|<-)\d+)?$"
    r"|ProfilerStep#\d+$"
    r"|Torch-Compiled Region(?:: [\d/_!]+)?$"
    r"|\[pytorch\|profiler\|execution_(?:trace|graph)\|(?:process|thread)\]$"
    r"|PyTorch Profiler \(\d+\)$|Iteration Start: PyTorch Profiler$"
    r"|Memcpy \w+ \([\w ]+ -> [\w ]+\)$|Memset \([\w ]+\)$"
    r"|(?:cuda|cu|hip|hsa_|roc|ur|nccl|xpu|ze|cublas|cudnn)[A-Z]\w*$"
)
_PLAIN = frozenset((
    "[memory]", "Record Window End", "INVALID", "record_param_comms", "forward", "detach",
    "detach_", "_grad_sum_to_size", "CompiledFunction", "CompiledFunctionBackward",
    "TorchDynamo Cache Lookup", "Pregraph bytecode", "AOTDispatcher Runtime Wrapper Prologue",
    "<forward op>", "<backward op>", "DistributedDataParallel.forward",
    "FullyShardedDataParallel.forward", "## process_group:init ##", "fwdbwd", "ac2g", "async_gpu",
    "launch", "Event Sync", "Stream Sync", "Context Sync", "Stream Wait Event", "recordEvent",
    "synchronizeStream", "synchronize", "enqueueCommand waitOnEvent",
    "host", "rank start", "step begin", "step end", "thread wait", "ghost",
    "work from before the recording", "unrecorded kernels of a CUDA graph",
    "unrecorded device work",
    "enqueueCommand memcpyHtoDAsync", "enqueueCommand memcpyDtoHAsync",
))  # fmt: skip
_MTIA = frozenset(("dma_request", "event_record", "event_wait", "pe_exe", "memset"))
# Words that everybody uses for parts of a step: a mark made of them alone says nothing.
_STEP_WORDS = frozenset((
    "forward", "backward", "optimizer", "step", "loss", "zero", "grad", "zero_grad", "data",
    "batch", "microbatch", "iteration", "train", "training", "model",
))  # fmt: skip
_OPTIMIZERS = frozenset((
    "SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "Adagrad", "Adadelta", "Adafactor",
    "ASGD", "LBFGS", "RMSprop", "Rprop", "SparseAdam", "Muon", "ZeroRedundancyOptimizer",
))  # fmt: skip
_LOADERS = frozenset(("_MultiProcessingDataLoaderIter", "_SingleProcessDataLoaderIter"))
_MODULES = frozenset((
    "Module", "Sequential", "ModuleList", "ModuleDict", "Linear", "Bilinear", "Identity",
    "Embedding", "EmbeddingBag", "LayerNorm", "RMSNorm", "GroupNorm", "BatchNorm1d",
    "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm", "Dropout", "Dropout2d", "ReLU", "ReLU6", "GELU",
    "SiLU", "Sigmoid", "Tanh", "Softmax", "LogSoftmax", "LeakyReLU", "ELU", "Mish", "GLU",
    "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d",
    "MaxPool1d", "MaxPool2d", "AvgPool1d", "AvgPool2d", "AdaptiveAvgPool1d", "AdaptiveAvgPool2d",
    "AdaptiveMaxPool2d", "Flatten", "Unflatten", "MultiheadAttention", "Transformer",
    "TransformerEncoder", "TransformerEncoderLayer", "TransformerDecoder",
    "TransformerDecoderLayer", "LSTM", "GRU", "RNN", "CrossEntropyLoss", "MSELoss", "L1Loss",
    "NLLLoss", "BCELoss", "BCEWithLogitsLoss", "Upsample", "DistributedDataParallel",
    "FullyShardedDataParallel", "DataParallel",
))  # fmt: skip
_GROUPS = frozenset((
    "default", "pg", "undefined", "world", "tensor", "data", "pipeline", "expert",
    "context", "sequence", "tp", "dp", "pp", "cp", "ep", "sp", "fsdp", "hsdp", "cpu", "cuda",
    "nccl", "gloo", "mpi", "ucc", "ok", "id", "None",
))  # fmt: skip
_COLLECTIVES = re.compile(
    r"_?(?:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|barrier|reduce|gather"
    r"|scatter|send|recv|wait|init|coalesced|start_coalescing|end_coalescing|pointToPoint)"
    r"(?:_base|_oop|_single|v|_?coalesced|_?into_tensor|_?tensor|_out|_sparse|_inplace)*_?",
    re.IGNORECASE,
)
# Roots of qualified names in kernels: PyTorch, the C++ library, and vendors' libraries.
_ROOTS = frozenset((
    "at", "c10", "torch", "caffe2", "std", "thrust", "cub", "cuda", "at_cuda_detail", "cutlass",
    "cute", "cublasLt", "cublas", "cudnn", "cask_cudnn", "cask_cudnn_infer", "cask_cudnn_train",
    "cutlass_cudnn", "cutlass_cudnn_infer", "cutlass_cudnn_train", "cutlass__5x_cudnn",
    "pytorch_flash", "hipcub", "rocprim", "ck", "ck_tile", "rocblas", "cusparse", "cufft", "nccl",
    "internal", "epilogue", "dot_kernel", "cutlass_internal", "vectorized", "__nv_hdl_wrapper_t",
    "thrust_detail", "cuda_std", "gemm", "wgrad", "dgrad",
))  # fmt: skip
_CPP_WORDS = frozenset((
    "void", "float", "double", "int", "long", "short", "char", "bool", "unsigned", "signed",
    "const", "true", "false", "lambda", "operator", "typename", "decltype", "nullptr", "auto",
    "half", "float2", "float4", "double2", "int2", "int4", "uint4", "instance", "type", "enum",
    "__half", "__half2", "__nv_bfloat16", "__nv_bfloat162", "__hip_bfloat16", "int8_t", "uint8_t",
    "int32_t", "uint32_t", "int64_t", "uint64_t", "size_t", "Tensor", "Params", "clone", "volatile",
    # PyTorch's own outside a namespace
    "TrivialOffsetCalculator", "OffsetCalculator", "function_traits", "linearize_index_kernel",
))  # fmt: skip
_VENDOR = re.compile(
    r"(?:cublas|cudnn|cufft|cusparse|nccl|rccl|msccl|cutlass|hipblas|rocblas|miopen"
    r"|curand|cunn)\w*$"
    r"|(?:maxwell|volta|turing|ampere|hopper|sm\d+|nvjet|cask|fmha|Cijk|igemm)_\w+$"
    r"|(?:gemv|gemm|sgemm|dgemm|hgemm|splitK)\w*(?:_kernel|_val|_lds\d*)?(?:_\w+)?$"
    r"|(?:scal|dot|reduce_1Block|asum|nrm2|axpy)_kernel$|magma_\w+$"
    r"|(?:wgrad|dgrad|fprop|winograd|fft2d|fft1d|flip_filter|im2col|im2col4d)\w*$"
    r"|(?:implicit|explicit)_convolve_\w+$|kernel_(?:grad|conv)_params$|biasType$"
    r"|(?:nchwToNhwc|nhwcToNchw)\w*$|SubTensorOp\w*$|flash_(?:fwd|bwd)\w*$|Flash_(?:fwd|bwd)\w*$"
    r"|batched_transpose_\w+$|softmax_warp_(?:forward|backward)$|elementwise_kernel_with_index$"
)
# TorchInductor names its kernels after the operators of ATen that it fused.
_TRITON = re.compile(r"triton_(?:poi|red|per|tem|for|mm|bmm|flex)_fused_[a-z0-9_]+$")
_NAMES = re.compile(r"(?<![\w:#])([A-Za-z_]\w*)(::)?")
_TORCH_FRAME = re.compile(r"torch/[\w/.-]+\.py\(\d+\): [\w<>]+$")
_STEP_MARK = re.compile(r"[\W\d_]+")
_NUMBERS = re.compile(r"[\d\s.,+\-eE()\[\]:/x>]*$")
_PYTHON_VALUES = re.compile(
    r"(?:True|False|None|inf|-inf|nan|Infinity|-Infinity|NaN|[\d\s.,+\-e()\[\]])*$"
)
_VALUES = re.compile(
    r"(?:cpu|cuda|hip|xpu|mtia|meta|mps)(?::\d+)?$"
    r"|<(?:None|Object|Stream|Storage|Generator|Device|Undefined|unknown)>$"
    r"|(?:sum|mean|none|avg|max|min|constant|reflect|replicate|floor|trunc|tanh|erf|linear|nearest"
    r"|bilinear|bicubic|relu|gelu|zeros|border|fro|nuc|int32|int64|reduce)$"
)
_TYPE_WORDS = frozenset((
    "Tensor", "TensorList", "GenericList", "Scalar", "ScalarList", "Tuple", "Dict", "Int", "Double",
    "Bool", "String", "None", "Device", "Stream", "Object", "Capsule", "Generator", "Storage",
    "SymInt", "SymFloat", "SymBool", "ScalarType", "Layout", "MemoryFormat", "float", "double",
    "half", "int", "long", "short", "char", "bool", "unsigned", "signed", "c10", "Half",
    "BFloat16", "complex", "nullptr", "uninitialized", "Float", "Byte", "Long", "Short", "Char",
    "QInt", "Optional", "Future", "Float8_e4m3fn", "Float8_e5m2", "a", "b", "str", "Any", "list",
    "ComplexFloat", "ComplexDouble", "QInt8", "QUInt8", "QInt32", "Scalars", "qint8", "quint8",
))  # fmt: skip
_WORDS = re.compile(r"[A-Za-z_]\w*")


def is_public_operator(name: str, operators: frozenset[str]) -> bool:
    """Whether an operator's, annotation's or runtime call's name is PyTorch's or a vendor's.

    Args:
        name: as in the trace.
        operators: ATen operators that the traces show, as `folded` gives them. Before torch 1.11
            generated autograd nodes had no number; one that is called like an operator is public.
    """
    if name in _PLAIN or _OPERATOR.match(name) or _TRITON.match(name):
        return True
    for prefix in ("autograd::engine::evaluate_function: ", "torch::autograd::CppNode<"):
        if name.startswith(prefix):
            return is_public_operator(name.removeprefix(prefix).removesuffix(">"), operators)
    if name.endswith("Backward") and folded(name.removesuffix("Backward")) in operators:
        return True
    if name.startswith(("Optimizer.step#", "Optimizer.zero_grad#")):
        return name.split("#", 1)[1].split(".", maxsplit=1)[0] in _OPTIMIZERS
    if name.startswith("enumerate(DataLoader)#"):
        return name.split("#", 1)[1].split(".", maxsplit=1)[0] in _LOADERS
    words = [word for word in _STEP_MARK.split(name) if word]
    return bool(words) and all(word.lower() in _STEP_WORDS for word in words)


def folded(name: str) -> str:
    """An operator's name as its autograd node spells it, without capitals and underscores."""
    return name.replace("_", "").lower()


def is_public_kernel(name: str) -> bool:
    """Whether every name in a kernel's name is PyTorch's, C++'s or a vendor's."""
    if name in _MTIA or _TRITON.match(name) or _OPERATOR.match(name):
        return True
    # A name in an anonymous namespace at the root has no other root: judged by itself.
    text = re.sub(r"(?<!::)\(anonymous namespace\)::", "", name)
    text = text.replace("(anonymous namespace)", "anonymous")
    found = _NAMES.findall(text)
    return bool(found) and all(
        word in _CPP_WORDS or (is_root and word in _ROOTS) or _VENDOR.match(word) is not None
        for word, is_root in found
    )


def is_public_frame(name: str) -> bool:
    """Whether a Python frame or a module's name is PyTorch's own."""
    if name.startswith("nn.Module: "):
        return name.removeprefix("nn.Module: ").rsplit("_", 1)[0] in _MODULES
    return _TORCH_FRAME.match(name) is not None


def is_public_group(name: str) -> bool:
    """Whether a process group's name or description is a number or a common word."""
    return all(word in _GROUPS or word.isdigit() for word in re.split(r"[\W_]+", name) if word)


def is_public_value(text: str) -> bool:
    """Whether a plain value that an operator took is a number, a flag, a device or a mode."""
    return bool(
        _PYTHON_VALUES.match(text)
        or _VALUES.match(text)
        or _COLLECTIVES.fullmatch(text)
        or is_public_group(text)
    )


def is_number_text(text: str) -> bool:
    """Whether a text holds numbers and their separators only."""
    return _NUMBERS.match(text) is not None


def is_public_type(text: str) -> bool:
    """Whether a type's name is made of PyTorch's words."""
    return all(word in _TYPE_WORDS for word in _WORDS.findall(text))


def is_public_collective(name: str) -> bool:
    """Whether this is what PyTorch calls a collective."""
    return _COLLECTIVES.fullmatch(name) is not None
