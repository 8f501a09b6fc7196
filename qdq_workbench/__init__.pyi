# The types of the public names, for type checkers and editors: at run time every name is loaded when first used.
from qdq_workbench import errors, mct, numerics, tfmot
from qdq_workbench.analysis.cost import LayerCost, layer_costs
from qdq_workbench.analysis.metrics import Metric
from qdq_workbench.analysis.search import search
from qdq_workbench.analysis.search_result import SearchResult, SearchStep
from qdq_workbench.analysis.sensitivity import sensitivity
from qdq_workbench.analysis.sensitivity_report import SensitivityEntry, SensitivityReport
from qdq_workbench.calibration.calibrate import apply_calibration, calibrate
from qdq_workbench.calibration.methods import calibration_methods
from qdq_workbench.calibration.result import CalibrationResult
from qdq_workbench.calibration.values import tensor_values, weight_values
from qdq_workbench.cases.auto import AutoQDQCase
from qdq_workbench.cases.base import CustomQDQInsertionCase, check_is_quantizable_by_layer_name
from qdq_workbench.cases.batch_norm import BNQDQCase
from qdq_workbench.cases.concat import ConcatQDQCase
from qdq_workbench.cases.networks import (
    EfficientNetQDQCase,
    InceptionQDQCase,
    MobileNetQDQCase,
    ResNetV1QDQCase,
    ResNetV2QDQCase,
)
from qdq_workbench.cases.pooling import MaxPoolQDQCase
from qdq_workbench.cases.residual import ResidualConnectionQDQCase
from qdq_workbench.conversion.fold_batch_norm import fold_batch_norm
from qdq_workbench.conversion.integer_files import load_integer_weights, save_integer_weights
from qdq_workbench.conversion.integer_weights import integer_weights
from qdq_workbench.conversion.load_model import load_model
from qdq_workbench.conversion.merge_lora import merge_lora
from qdq_workbench.conversion.quantize_model import quantize_model
from qdq_workbench.conversion.quantized_model import QuantizedModel
from qdq_workbench.conversion.retarget import retarget
from qdq_workbench.conversion.split_activations import split_activations
from qdq_workbench.conversion.split_attention import split_attention
from qdq_workbench.conversion.split_separable import split_separable_convolutions
from qdq_workbench.conversion.strip import strip
from qdq_workbench.errors import PlacementConflictError, QDQError, SpecError
from qdq_workbench.export.onnx_export import export_float_onnx, export_onnx
from qdq_workbench.export.report import ExportReport
from qdq_workbench.export.tflite_export import TFLiteReport, export_tflite
from qdq_workbench.graph.model_graph import ModelGraph
from qdq_workbench.graph_builder.reader import build_graph
from qdq_workbench.mct.facade import keras_post_training_quantization
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.placement.targets.target import get_target, target_names
from qdq_workbench.planning import explain, plan_placement
from qdq_workbench.post_training.bias_correction import correct_biases
from qdq_workbench.post_training.clip_weights import clip_weights
from qdq_workbench.post_training.codebook import codebook_weights
from qdq_workbench.post_training.scale_equalization import equalize_scales
from qdq_workbench.post_training.shift_negative import shift_negative
from qdq_workbench.quantizers.all_values import AllValuesQuantizer
from qdq_workbench.quantizers.fixed import FixedQuantizer
from qdq_workbench.quantizers.last_value import LastValueQuantizer
from qdq_workbench.quantizers.lsq import LSQQuantizer
from qdq_workbench.quantizers.moving_average import MovingAverageQuantizer
from qdq_workbench.report.certificate_page import write_certificate_page
from qdq_workbench.report.sensitivity import sensitivity_figure
from qdq_workbench.runtimes.explanation import Explanation
from qdq_workbench.spec.framework_info import DefaultDict, FrameworkInfo
from qdq_workbench.spec.quantization_spec import LayerConfig, QuantizationSpec
from qdq_workbench.spec.quantize_config import LayerQuantizeConfig, QuantizeConfig
from qdq_workbench.spec.quantizer_spec import QuantizerSpec
from qdq_workbench.verification.certificate import Certificate, certify
from qdq_workbench.verification.compare import Comparison, compare
from qdq_workbench.verification.import_qdq import ImportedQDQ, import_qdq
from qdq_workbench.verification.lint import LintReport, lint_onnx
from qdq_workbench.verification.report import VerificationReport
from qdq_workbench.verification.verify import verify_onnx
from qdq_workbench.wrappers.base import BaseQuantizeWrapper, NonWeightedBaseQuantizeWrapper, WeightedBaseQuantizeWrapper
from qdq_workbench.wrappers.layers import AddQuantizeWrapper
from qdq_workbench.wrappers.qdq import QuantizeDequantize

__all__ = [
    "AddQuantizeWrapper",
    "AllValuesQuantizer",
    "AutoQDQCase",
    "BNQDQCase",
    "BaseQuantizeWrapper",
    "CalibrationResult",
    "Certificate",
    "Comparison",
    "ConcatQDQCase",
    "CustomQDQInsertionCase",
    "DefaultDict",
    "EfficientNetQDQCase",
    "Explanation",
    "ExportReport",
    "FixedQuantizer",
    "FrameworkInfo",
    "ImportedQDQ",
    "InceptionQDQCase",
    "LSQQuantizer",
    "LastValueQuantizer",
    "LayerConfig",
    "LayerCost",
    "LayerQuantizeConfig",
    "LintReport",
    "MaxPoolQDQCase",
    "Metric",
    "MobileNetQDQCase",
    "ModelGraph",
    "MovingAverageQuantizer",
    "NonWeightedBaseQuantizeWrapper",
    "PlacementConflictError",
    "PlacementPlan",
    "QDQError",
    "QuantizationSpec",
    "QuantizeConfig",
    "QuantizeDequantize",
    "QuantizedModel",
    "QuantizerSpec",
    "ResNetV1QDQCase",
    "ResNetV2QDQCase",
    "ResidualConnectionQDQCase",
    "SearchResult",
    "SearchStep",
    "SensitivityEntry",
    "SensitivityReport",
    "SpecError",
    "TFLiteReport",
    "VerificationReport",
    "WeightedBaseQuantizeWrapper",
    "__version__",
    "apply_calibration",
    "build_graph",
    "calibrate",
    "calibration_methods",
    "certify",
    "check_is_quantizable_by_layer_name",
    "clip_weights",
    "codebook_weights",
    "compare",
    "correct_biases",
    "equalize_scales",
    "errors",
    "explain",
    "export_float_onnx",
    "export_onnx",
    "export_tflite",
    "fold_batch_norm",
    "get_target",
    "import_qdq",
    "integer_weights",
    "keras_post_training_quantization",
    "layer_costs",
    "lint_onnx",
    "load_integer_weights",
    "load_model",
    "mct",
    "merge_lora",
    "numerics",
    "plan_placement",
    "quantize_model",
    "retarget",
    "save_integer_weights",
    "search",
    "sensitivity",
    "sensitivity_figure",
    "shift_negative",
    "split_activations",
    "split_attention",
    "split_separable_convolutions",
    "strip",
    "target_names",
    "tensor_values",
    "tfmot",
    "verify_onnx",
    "weight_values",
    "write_certificate_page",
]

__version__: str
G_NUM_BITS: int
G_NARROW_RANGE: bool
G_SYMMETRIC: bool
