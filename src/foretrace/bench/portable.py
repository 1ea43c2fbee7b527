"""Operators of one kind of device, written for any: put into a program that uses them.

A trace of a GPU holds what autograd called there, cuDNN's gradient of batch normalisation say. So
that the program also runs elsewhere, it calls a function that looks where its tensors are.
"""

from __future__ import annotations

# What stands in for an operator of this name, as text of a function of that name.
PORTABLE = {
    "aten::cudnn_batch_norm_backward": '''
def cudnn_batch_norm_backward(x, grad, weight, mean, var, save_mean, save_var, eps, reserve):
    """Of cuDNN on its GPUs, of PyTorch elsewhere."""
    if x.is_cuda:
        return aten.cudnn_batch_norm_backward.default(
            x, grad, weight, mean, var, save_mean, save_var, eps, reserve
        )
    return aten.native_batch_norm_backward.default(
        grad, x, weight, mean, var, save_mean, save_var, True, eps, [True, True, True]
    )
''',
    "aten::miopen_batch_norm_backward": '''
def miopen_batch_norm_backward(x, grad, weight, mean, var, save_mean, save_var, eps):
    """Of MIOpen on its GPUs, of PyTorch elsewhere."""
    if x.is_cuda and torch.version.hip:
        return aten.miopen_batch_norm_backward.default(
            x, grad, weight, mean, var, save_mean, save_var, eps
        )
    return aten.native_batch_norm_backward.default(
        grad, x, weight, mean, var, save_mean, save_var, True, eps, [True, True, True]
    )
''',
    "aten::cudnn_batch_norm": '''
def cudnn_batch_norm(x, weight, bias, mean, var, training, momentum, eps):
    """Of cuDNN on its GPUs, of PyTorch elsewhere."""
    if x.is_cuda:
        return aten.cudnn_batch_norm.default(x, weight, bias, mean, var, training, momentum, eps)
    made = aten.native_batch_norm.default(x, weight, bias, mean, var, training, momentum, eps)
    return *made, x.new_empty(0, dtype=torch.uint8)
''',
    "aten::miopen_batch_norm": '''
def miopen_batch_norm(x, weight, bias, mean, var, training, momentum, eps):
    """Of MIOpen on its GPUs, of PyTorch elsewhere."""
    if x.is_cuda and torch.version.hip:
        return aten.miopen_batch_norm.default(x, weight, bias, mean, var, training, momentum, eps)
    return aten.native_batch_norm.default(x, weight, bias, mean, var, training, momentum, eps)
''',
}
