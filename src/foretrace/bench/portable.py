"""Operators of one kind of device, written for any: put into a program that uses them.

A trace of a GPU holds what autograd called there, cuDNN's gradient of batch normalisation say. So
that the program also runs elsewhere, it calls a function that looks where its tensors are.
"""

from __future__ import annotations

_BATCH_NORM_BACKWARD = '''
def {vendor}_batch_norm_backward({first}, {second}, weight, mean, var, save_mean, save_var, eps{reserve}):
    """{title}'s gradient of batch normalisation, or any device's."""
    if x.is_cuda:
        return aten.{vendor}_batch_norm_backward.default(
            {first}, {second}, weight, mean, var, save_mean, save_var, eps{reserve}
        )
    return aten.native_batch_norm_backward.default(
        grad, x, weight, mean, var, save_mean, save_var, True, eps, [True, True, True]
    )
'''
_BATCH_NORM = '''
def {vendor}_batch_norm(x, weight, bias, mean, var, training, momentum, eps):
    """{title}'s batch normalisation, or any device's."""
    if x.is_cuda:
        return aten.{vendor}_batch_norm.default(
            x, weight, bias, mean, var, training, momentum, eps
        )
    made = aten.native_batch_norm.default(x, weight, bias, mean, var, training, momentum, eps)
    return *made{extra}
'''
_NO_RESERVE = ", x.new_empty(0, dtype=torch.uint8)"

# What stands in for an operator of this name, as text of a function of that name.
PORTABLE = {
    "aten::cudnn_batch_norm_backward": _BATCH_NORM_BACKWARD.format(
        vendor="cudnn", title="cuDNN", first="x", second="grad", reserve=", reserve"
    ),
    "aten::miopen_batch_norm_backward": _BATCH_NORM_BACKWARD.format(
        vendor="miopen", title="MIOpen", first="x", second="grad", reserve=""
    ).replace(
        "weight, mean, var, save_mean, save_var, eps", "weight, mean, var, save_mean, save_var, eps"
    ),
    "aten::cudnn_batch_norm": _BATCH_NORM.format(
        vendor="cudnn", title="cuDNN", extra=_NO_RESERVE
    ),
    "aten::miopen_batch_norm": _BATCH_NORM.format(vendor="miopen", title="MIOpen", extra=","),
}
