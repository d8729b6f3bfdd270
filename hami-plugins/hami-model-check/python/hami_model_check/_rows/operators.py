"""The table of operators: how each treats the batch axis. `reference/row-independence.md` of the documents shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hami_model_check._rows.call import Call
from hami_model_check._rows.rules import (
    along_axes,
    elementwise,
    networks,
    parts,
    products,
    shapes,
    tables,
)
from hami_model_check._rows.value import Value

Rule = Callable[[Call], list[Value]]

MICROSOFT = "com.microsoft"
ML = "ai.onnx.ml"
NEWEST = {"": 28, ML: 5, MICROSOFT: 1}  # the opsets that the rules describe, by domain


class Operator(NamedTuple):
    """How an operator treats the batch axis.

    Attributes:
        rule: follows the batch axis; its docstring says what the operator does.
        apart: when rows stay apart, for the documents.
        attributes: the attributes that the rule knows; others make the result unknown.
        takes_sizes: whether the rule follows inputs that depend on the number of rows.
    """

    rule: Rule
    apart: str
    attributes: frozenset[str]
    takes_sizes: bool


OPERATORS: dict[tuple[str, str], Operator] = {}


def _declare(
    rule: Rule, apart: str, names: str, attributes: str = "", *, domain: str = "", takes_sizes: bool = False
) -> None:
    entry = Operator(rule, apart, frozenset(attributes.split()), takes_sizes)
    for name in names.split():
        OPERATORS[domain, name] = entry


_ALWAYS = "always"
_SAME_AXIS = "all inputs have the batch on one axis after broadcasting, or no batch"
_NOT_AXES = "the batch is not among the axes that it works along"
_FIRST = "the batch is axis 0"
_CONSTANT = "the batch is axis 0; weights are constants"
_NEVER = "never: "
_LISTS = "not followed: lists, maps and optional values"

# Elements at the same place.
_declare(
    elementwise.elementwise,
    _SAME_AXIS,
    """Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast Ceil Celu
    Cos Cosh Div Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish IsInf IsNaN LeakyRelu
    Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal RegexFullMatch Relu Round Selu
    Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt StringConcat Sub Sum Swish Tan Tanh ThresholdedRelu Where
    Xor""",
    """alpha approximate axis beta bias broadcast consumed_inputs detect_negative detect_positive direction fmod gamma
    lambd pattern round_mode saturate to""",
    takes_sizes=True,
)
_declare(elementwise.identity, _ALWAYS, "Identity", takes_sizes=True)
_declare(elementwise.first_input_only, _ALWAYS, "CastLike", "round_mode saturate", takes_sizes=True)
_declare(elementwise.bit_cast, _ALWAYS, "BitCast", "to")
_declare(elementwise.clip, _ALWAYS, "Clip", "consumed_inputs max min")
_declare(networks.dropout, "it is not in training mode", "Dropout", "consumed_inputs is_test ratio seed")

# Along axes.
_declare(
    along_axes.reduce,
    _NOT_AXES,
    """ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
    ReduceSumSquare""",
    "axes keepdims noop_with_empty_axes",
    takes_sizes=True,
)
_declare(along_axes.arg_reduce, _NOT_AXES, "ArgMax ArgMin", "axis keepdims select_last_index")
_declare(along_axes.cumulate, _NOT_AXES, "CumSum CumProd", "exclusive reverse")
_declare(
    along_axes.softmax,
    "the batch is not the axis; up to opset 12: the batch is before the axis",
    "Softmax LogSoftmax Hardmax",
    "axis",
)
_declare(
    along_axes.normalise_last_axes,
    "the batch is before the axis; weights are the same for all rows",
    "LayerNormalization RMSNormalization SimplifiedLayerNormalization",
    "axis epsilon stash_type",
)
_declare(along_axes.normalise_one_axis, _NOT_AXES, "LpNormalization", "axis p")
_declare(along_axes.normalise_axes, _NOT_AXES, "MeanVarianceNormalization", "axes")
_declare(along_axes.top_k, _NOT_AXES, "TopK", "axis k largest sorted")
_declare(along_axes.one_hot, _ALWAYS, "OneHot", "axis")
_declare(along_axes.keeps_last_two_apart, "the batch is before the last two axes", "Trilu", "upper")
_declare(along_axes.determinant, "the batch is before the last two axes", "Det")
_declare(along_axes.fourier, "the batch is neither the axis nor the last axis", "DFT", "axis inverse onesided")
_declare(networks.short_time_fourier, _FIRST, "STFT", "onesided")
_declare(
    along_axes.reverse_sequence,
    "the batch is `batch_axis`, and lengths are rows",
    "ReverseSequence",
    "batch_axis time_axis",
)
_declare(
    along_axes.loss,
    "the reduction is `none`; the batch is axis 0",
    "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss",
    "ignore_index reduction",
)

# Shapes.
_declare(shapes.shape, "followed as numbers", "Shape", "start end", takes_sizes=True)
_declare(shapes.size, "followed as a number", "Size", takes_sizes=True)
_declare(
    shapes.reshape,
    "each row remains one block: what precedes it in the shape stays equal",
    "Reshape",
    "allowzero consumed_inputs shape",
    takes_sizes=True,
)
_declare(shapes.flatten, "each row remains one block, as in Reshape", "Flatten", "axis")
_declare(shapes.transpose, "always; the batch axis moves", "Transpose", "perm", takes_sizes=True)
_declare(shapes.squeeze, "the axes are given, and the batch is not among them", "Squeeze", "axes", takes_sizes=True)
_declare(shapes.unsqueeze, "always; the batch axis moves", "Unsqueeze", "axes", takes_sizes=True)
_declare(
    shapes.expand, "the batch axis keeps its length, or is made from an axis of length 1", "Expand", takes_sizes=True
)
_declare(
    shapes.constant_of_shape,
    "at most one axis depends on the number of rows",
    "ConstantOfShape",
    "value",
    takes_sizes=True,
)
_declare(shapes.tile, "always; repeated rows are followed as blocks", "Tile", takes_sizes=True)
_declare(shapes.range_, "the limits do not depend on rows", "Range", "stash_type", takes_sizes=True)
_declare(shapes.pad, "the batch axis is not padded", "Pad", "mode paddings pads value")
_declare(
    shapes.resize,
    "the batch axis keeps its length",
    "Resize Upsample",
    """antialias axes coordinate_transformation_mode cubic_coeff_a exclude_outside extrapolation_value height_scale
    keep_aspect_ratio_policy mode nearest_mode scales width_scale""",
    takes_sizes=True,
)
_declare(shapes.center_crop_pad, "the batch axis keeps its length", "CenterCropPad", "axes", takes_sizes=True)
_declare(shapes.eye_like, _NEVER + "an element depends on its position", "EyeLike", "dtype k")

# Parts.
_declare(parts.concat, "the batch is not the axis, and all inputs have it", "Concat", "axis", takes_sizes=True)
_declare(parts.split, "the batch is not the axis", "Split", "axis num_outputs split", takes_sizes=True)
_declare(parts.slice_, "the whole batch axis is taken", "Slice", "axes ends starts", takes_sizes=True)
_declare(
    parts.gather,
    "the batch is not the axis; data or indices have the batch, not both",
    "Gather",
    "axis",
    takes_sizes=True,
)
_declare(parts.gather_elements, "the batch is not the axis; data and indices have it", "GatherElements", "axis")
_declare(parts.gather_nd, "the batch is among `batch_dims`, or after the indexed axes", "GatherND", "batch_dims")
_declare(
    parts.scatter_elements,
    "the batch is not the axis, and all inputs have it",
    "Scatter ScatterElements",
    "axis reduction",
)
_declare(parts.scatter_nd, "the batch is after the indexed axes", "ScatterND", "reduction")
_declare(parts.compress, "the batch is not the axis; the condition is a constant", "Compress", "axis")
_declare(parts.collects, _NEVER + "the length of the result depends on all rows", "NonZero")
_declare(parts.collects, _NEVER + "the length of the result depends on all rows", "Unique", "axis sorted")
_declare(parts.collects, _NEVER + "the boxes of all images are in one list", "NonMaxSuppression", "center_point_box")

# Products, convolutions, images.
_declare(
    products.matmul, "the batch axis is not summed, and one input has it, or both before the last two axes", "MatMul"
)
_declare(
    products.gemm,
    "the batch axis is not summed, and one of the two matrices has it",
    "Gemm",
    "alpha beta broadcast transA transB",
)
_declare(products.integer_matmul, "as MatMul; zero points are constants", "MatMulInteger")
_declare(products.quantised_matmul, "as MatMul; scales are constants", "QLinearMatMul")
_declare(
    products.einsum,
    "the letter of the batch is in the result and the same in all inputs with rows",
    "Einsum",
    "equation",
)
_CONVOLUTION = "auto_pad dilations group kernel_shape output_padding output_shape pads strides"
_declare(products.convolution, _CONSTANT, "Conv ConvTranspose ConvInteger QLinearConv", _CONVOLUTION)
_declare(
    products.deformed_convolution, _CONSTANT, "DeformConv", "dilations group kernel_shape offset_group pads strides"
)
_declare(
    products.pooling,
    "the batch is axis 0 or 1",
    "AveragePool GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool MaxPool",
    "auto_pad ceil_mode count_include_pad dilations kernel_shape p pads storage_order strides",
)
_declare(
    products.channels_mixed,
    _CONSTANT,
    "LRN InstanceNormalization GroupNormalization DepthToSpace SpaceToDepth Col2Im",
    """alpha beta bias blocksize consumed_inputs dilations epsilon mode num_groups pads size stash_type strides""",
)
_declare(
    products.batch_normalisation,
    "it is not in training mode; the batch is not axis 1",
    "BatchNormalization",
    "consumed_inputs epsilon is_test momentum spatial training_mode",
)
_declare(products.by_rows, "both inputs have the batch as axis 0", "GridSample", "align_corners mode padding_mode")
_declare(
    products.affine_grid,
    "the batch is axis 0, and the size has its length",
    "AffineGrid",
    "align_corners",
    takes_sizes=True,
)
_declare(
    products.regions,
    "images are constants; regions and numbers of images have the batch as axis 0",
    "RoiAlign MaxRoiPool",
    "coordinate_transformation_mode mode output_height output_width pooled_shape sampling_ratio spatial_scale",
)

# Layers.
_RECURRENT = """activation_alpha activation_beta activations clip direction hidden_size input_forget layout
    linear_before_reset output_sequence"""
_declare(
    networks.recurrent,
    "the batch is axis 1 (layout 0) or axis 0 (layout 1), also of the states",
    "LSTM GRU RNN",
    _RECURRENT,
)
_declare(
    networks.attention,
    "queries, keys and values have the batch as axis 0",
    "Attention",
    """is_causal kv_num_heads left_window_size q_num_heads qk_matmul_output_mode right_window_size scale softcap
    softmax_precision""",
)
_declare(networks.rotary, _FIRST, "RotaryEmbedding", "interleaved num_heads rotary_embedding_dim")

# Quantisation.
_declare(
    networks.quantise,
    "scales are constants, and one for all rows",
    "QuantizeLinear DequantizeLinear",
    "axis block_size output_dtype precision saturate",
)
_declare(networks.dynamic_scale, _NEVER + "one scale is computed from all rows", "DynamicQuantizeLinear")

# Constants, random numbers, lists.
_declare(
    networks.draws,
    _NEVER + "results differ in each run",
    "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike",
    "dtype high low mean sample_size scale seed shape",
)
_declare(
    networks.unfollowed,
    "the input has no batch",
    """BlackmanWindow HammingWindow HannWindow MelWeightMatrix ImageDecoder MaxUnpool StringNormalizer SwiGLU
    CausalConvWithState LinearAttention TensorScatter""",
    """activation alpha case_change_action chunk_size axis mode is_case_sensitive kernel_shape kv_num_heads locale
    output_datatype pads periodic pixel_format q_num_heads scale stopwords strides update_rule""",
)
_declare(
    parts.lists,
    _LISTS,
    """ConcatFromSequence Optional OptionalGetElement OptionalHasElement SequenceAt SequenceConstruct SequenceEmpty
    SequenceErase SequenceInsert SequenceLength SplitToSequence""",
    "axis dtype keepdims new_axis type",
)
_declare(
    tables.n_grams,
    "the input is [batch, words]",
    "TfIdfVectorizer",
    "max_gram_length max_skip_count min_gram_length mode ngram_counts ngram_indexes pool_int64s pool_strings weights",
)
_declare(tables.longest_of_all, _NEVER + "rows are padded to the longest of all", "StringSplit", "delimiter maxsplit")

# ai.onnx.ml
_TREES = """aggregate_function base_values base_values_as_tensor class_ids class_nodeids class_treeids class_weights
    class_weights_as_tensor classlabels_int64s classlabels_strings leaf_targetids leaf_weights membership_values
    n_targets nodes_falseleafs nodes_falsenodeids nodes_featureids nodes_hitrates nodes_hitrates_as_tensor
    nodes_missing_value_tracks_true nodes_modes nodes_nodeids nodes_splits nodes_treeids nodes_trueleafs
    nodes_truenodeids nodes_values nodes_values_as_tensor post_transform target_ids target_nodeids target_treeids
    target_weights target_weights_as_tensor tree_roots"""
_LINEAR = """classlabels_ints classlabels_strings coefficients intercepts kernel_params kernel_type multi_class
    n_supports one_class post_transform prob_a prob_b rho support_vectors targets vectors_per_class"""
_TABLE = "the input is [batch, features]"
_declare(tables.table, _TABLE, "TreeEnsemble TreeEnsembleRegressor", _TREES, domain=ML)
_declare(tables.classifier, _TABLE, "TreeEnsembleClassifier", _TREES, domain=ML)
_declare(tables.table, _TABLE, "LinearRegressor SVMRegressor", _LINEAR, domain=ML)
_declare(tables.classifier, _TABLE, "LinearClassifier SVMClassifier", _LINEAR, domain=ML)
_declare(
    tables.table,
    _TABLE,
    "Scaler Normalizer Imputer",
    "imputed_value_floats imputed_value_int64s norm offset replaced_value_float replaced_value_int64 scale",
    domain=ML,
)
_declare(tables.features, "all inputs are [batch, features]", "FeatureVectorizer", "inputdimensions", domain=ML)
_declare(tables.one_of_categories, _ALWAYS, "OneHotEncoder", "cats_int64s cats_strings zeros", domain=ML)
_declare(
    elementwise.elementwise,
    _ALWAYS,
    "Binarizer CategoryMapper LabelEncoder",
    """cats_int64s cats_strings classes_strings default_float default_int64 default_string default_tensor keys_floats
    keys_int64s keys_strings keys_tensor threshold values_floats values_int64s values_strings values_tensor""",
    domain=ML,
)
_declare(parts.array_features, "the batch is not the last axis", "ArrayFeatureExtractor", domain=ML)
_declare(
    parts.lists,
    _LISTS,
    "CastMap DictVectorizer",
    "cast_to int64_vocabulary map_form max_map string_vocabulary",
    domain=ML,
)
_declare(tables.maps, "the input is [batch, classes]", "ZipMap", "classlabels_int64s classlabels_strings", domain=ML)

# com.microsoft
_declare(elementwise.elementwise, _SAME_AXIS, "Gelu QuickGelu", "alpha", domain=MICROSOFT)
_declare(networks.last_axis_bias, _SAME_AXIS, "BiasGelu FastGelu BiasAdd", domain=MICROSOFT)
_declare(
    products.fused_matmul,
    "as MatMul",
    "FusedMatMul TransposeMatMul",
    "alpha transA transB transBatchA transBatchB",
    domain=MICROSOFT,
)
_declare(
    products.gemm,
    "as Gemm",
    "FusedGemm",
    "activation activation_alpha activation_beta activation_gamma alpha beta transA transB",
    domain=MICROSOFT,
)
_declare(
    products.fused_convolution, _CONSTANT, "FusedConv", _CONVOLUTION + " activation activation_params", domain=MICROSOFT
)
_declare(products.convolution, _CONSTANT, "QLinearConv", _CONVOLUTION + " channels_last", domain=MICROSOFT)
_declare(
    products.weights_in_bits,
    "the batch is not the last axis",
    "MatMulNBits",
    "K N accuracy_level bits block_size weight_prepacked",
    domain=MICROSOFT,
)
_declare(products.matmul_to_float, "as MatMul; scales are constants", "MatMulIntegerToFloat", domain=MICROSOFT)
_declare(products.quantised_gemm, "as Gemm; scales are constants", "QGemm", "alpha transA transB", domain=MICROSOFT)
_declare(
    networks.dynamic_matmul, _NEVER + "one scale is computed from all rows", "DynamicQuantizeMatMul", domain=MICROSOFT
)
_declare(
    networks.quantised_recurrent,
    _NEVER + "one scale is computed from all rows",
    "DynamicQuantizeLSTM",
    _RECURRENT,
    domain=MICROSOFT,
)
_declare(
    networks.quantise,
    "scales are constants, and one for all rows",
    "QuantizeLinear DequantizeLinear",
    "axis",
    domain=MICROSOFT,
)
_declare(
    networks.fused_attention,
    "the input has the batch as axis 0; weights are constants",
    "Attention",
    """do_rotary mask_filter_value num_heads past_present_share_buffer qkv_hidden_sizes rotary_embedding_dim scale
    unidirectional""",
    domain=MICROSOFT,
)
_declare(
    networks.heads_attention,
    "queries, keys and values have the batch as axis 0",
    "MultiHeadAttention",
    "mask_filter_value num_heads scale unidirectional",
    domain=MICROSOFT,
)
_declare(
    networks.skip_normalisation,
    "the batch is not the last axis; weights are constants",
    "SkipLayerNormalization SkipSimplifiedLayerNormalization",
    "epsilon",
    domain=MICROSOFT,
)
_declare(networks.embed, _CONSTANT, "EmbedLayerNormalization", "epsilon mask_index_type", domain=MICROSOFT)
_declare(
    networks.rotary_with_places,
    _FIRST,
    "RotaryEmbedding",
    "interleaved is_packed_batching num_heads rotary_embedding_dim scale",
    domain=MICROSOFT,
)


class EngineRule(NamedTuple):
    """An operator by which an engine mixes rows where ONNX does not."""

    first_opset: int
    last_opset: int
    why: str
    attribute: str = ""  # the rule applies only if this integer attribute is not 0


_ALL_AXES = EngineRule(13, 17, "is computed by OpenVINO over every axis, the batch axis too")
_NO_LAYOUT = EngineRule(14, NEWEST[""], "is computed by OpenVINO as if layout were 0, so that axis 0 is time", "layout")

# Operators of ONNX that an engine computes differently where it concerns the batch axis, by engine and name.
ENGINE_RULES: dict[tuple[str, str], EngineRule] = {
    **{("openvino", name): _ALL_AXES for name in ("ReduceL1", "ReduceLogSum", "ReduceLogSumExp")},
    **{("openvino", name): _NO_LAYOUT for name in ("LSTM", "GRU", "RNN")},
}
