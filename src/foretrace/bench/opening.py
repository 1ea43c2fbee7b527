"""Which operators are replayed whole, and which as what they are made of.

An operator is replayed whole unless something made inside it is read by another operator that is
replayed. Then it is opened, if it is composite, and the operators inside it are replayed instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from foretrace.bench.identities import Identities, value_indices
from foretrace.bench.tree import Tree, is_operator

# Operators that are made of others before autograd sees them. What autograd keeps for the backward
# pass is made inside of these, by the operators below them. No other operator is ever opened,
# since a kernel is more than the operators recorded inside it.
# Source: names whose `CompositeImplicitAutograd` kernel PyTorch 2.13 registers
# (`torch._C._dispatch_has_kernel_for_dispatch_key`), those that return tensors.
_COMPOSITE_NAMES = """
_batch_norm_impl_index _convolution _convolution_mode _fused_rms_norm _lu_with_info
_pad_circular _scaled_dot_product_attention_math _upsample_bicubic2d_aa _upsample_bilinear2d_aa
_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d _weight_norm
absolute absolute_ adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
adaptive_max_pool1d adjoint alpha_dropout alpha_dropout_ argwhere atleast_1d atleast_2d
atleast_3d avg_pool1d batch_norm bilinear broadcast_tensors broadcast_to cartesian_prod cdist
chain_matmul chalf chunk clip clip_ coalesce column_stack combinations concat concatenate conj
conj_physical contiguous conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
corrcoef cosine_embedding_loss cosine_similarity cov cross cross_entropy_loss ctc_loss
cumulative_trapezoid diag diagflat diff divide divide_ dropout dropout_ dsplit dstack einsum
embedding_backward embedding_bag expand_as feature_alpha_dropout feature_alpha_dropout_
feature_dropout feature_dropout_ fill_diagonal_ fix fix_ flatten flatten_dense_tensors fliplr
flipud float_power float_power_ frobenius_norm fused_moving_avg_obs_fake_quant gradient greater
greater_ greater_equal greater_equal_ grid_sampler group_norm gru gru_cell hinge_embedding_loss
hsplit hstack imag inner instance_norm isclose istft kl_div kron l1_loss layer_norm less less_
less_equal less_equal_ linear log_sigmoid log_softmax lstm lstm_cell mH mT margin_ranking_loss
matmul matrix_H matrix_exp matrix_power max_pool1d max_pool2d max_pool3d meshgrid moveaxis
movedim msort multilabel_margin_loss multiply multiply_ nanmean nanquantile narrow
native_channel_shuffle negative negative_ nll_loss nll_loss2d nll_loss_nd norm_except_dim
not_equal not_equal_ one_hot outer pad pad_sequence pairwise_distance pdist poisson_nll_loss
positive prelu quantile ravel real relu6 relu6_ repeat_interleave reshape reshape_as
resolve_conj resolve_neg rms_norm rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell row_stack rrelu
rrelu_ scaled_dot_product_attention selu selu_ slow_conv3d smm softmax split square square_
sspaddmm std std_mean stft subtract subtract_ swapaxes swapaxes_ swapdims swapdims_
take_along_dim tensor_split tensordot thnn_conv2d tile to trapezoid trapz triplet_margin_loss
true_divide true_divide_ type_as unflatten unflatten_dense_tensors unsafe_chunk
upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d
upsample_nearest3d upsample_trilinear3d vander var var_mean view_as vsplit vstack where
"""
COMPOSITE = frozenset(_COMPOSITE_NAMES.split())


def replayed(tree: Tree, found: Identities, topmost: Sequence[int]) -> tuple[int, ...]:
    """The operators to replay, as they began.

    Args:
        tree: the trace.
        found: its tensors.
        topmost: operators that lie inside no other.
    """
    whole, pending = set(topmost), list(topmost)
    while pending:
        reader = pending.pop()
        if reader not in whole:
            continue
        for index in value_indices(found.uses[reader].reads):
            makers = found.values[index].makers
            while makers and whole.isdisjoint(makers):
                outer = _holder(tree, makers[-1], whole)
                if outer is None or outer == reader or not _is_composite(tree, outer):
                    break
                whole.remove(outer)
                inside = _operators_inside(tree, outer)
                whole.update(inside)
                pending.extend(inside)
    return tuple(sorted(whole))


def _holder(tree: Tree, node: int, whole: set[int]) -> int | None:
    return next((one for one in tree.ancestors(node) if one in whole), None)


def _is_composite(tree: Tree, node: int) -> bool:
    namespace, _, name = tree.nodes[node].name.partition("::")
    return namespace == "aten" and name in COMPOSITE


def _operators_inside(tree: Tree, node: int) -> list[int]:
    """Topmost operators inside this one."""
    found, stack = [], list(tree.children(node))
    while stack:
        one = stack.pop()
        if is_operator(tree.nodes[one]):
            found.append(one)
        else:
            stack.extend(tree.children(one))
    return found
