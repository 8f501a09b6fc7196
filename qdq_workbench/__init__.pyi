# The types of the public names, for type checkers and editors: at run time every name is loaded when first used.
from qdq_workbench import (
    analysis as analysis,
)
from qdq_workbench import (
    calibration as calibration,
)
from qdq_workbench import (
    certificates as certificates,
)
from qdq_workbench import (
    correction,
    foreign,
    numerics,
    transforms,
)
from qdq_workbench import (
    diagnosis as diagnosis,
)
from qdq_workbench import (
    errors as errors,
)
from qdq_workbench import (
    files as files,
)
from qdq_workbench import (
    mct as mct,
)
from qdq_workbench import (
    profiling as profiling,
)
from qdq_workbench import (
    results as results,
)
from qdq_workbench import (
    spec as spec,
)
from qdq_workbench import (
    targets as targets,
)
from qdq_workbench import (
    tfmot as tfmot,
)
from qdq_workbench import (
    wrappers as wrappers,
)
from qdq_workbench._documents import parse_json as parse_json
from qdq_workbench._files import lock_folder as lock_folder
from qdq_workbench._files import write_atomically as write_atomically
from qdq_workbench._interrupts import stoppable as stoppable
from qdq_workbench._scratch import scratch_folder as scratch_folder
from qdq_workbench.analysis.cost import LayerCost as LayerCost
from qdq_workbench.analysis.cost import layer_costs as layer_costs
from qdq_workbench.analysis.file_score import FileScore as FileScore
from qdq_workbench.analysis.file_score import score_file as score_file
from qdq_workbench.analysis.metrics import Metric as Metric
from qdq_workbench.analysis.plan_scores import PlanScores as PlanScores
from qdq_workbench.analysis.search import search
from qdq_workbench.analysis.search_result import SearchResult as SearchResult
from qdq_workbench.analysis.search_result import SearchStep as SearchStep
from qdq_workbench.analysis.sensitivity import sensitivity
from qdq_workbench.analysis.sensitivity_report import (
    SensitivityEntry as SensitivityEntry,
)
from qdq_workbench.analysis.sensitivity_report import (
    SensitivityReport as SensitivityReport,
)
from qdq_workbench.calibration.calibrate import apply_calibration as apply_calibration
from qdq_workbench.calibration.calibrate import calibrate
from qdq_workbench.calibration.methods import calibration_methods as calibration_methods
from qdq_workbench.calibration.result import CalibrationResult as CalibrationResult
from qdq_workbench.calibration.values import tensor_values as tensor_values
from qdq_workbench.calibration.values import weight_values as weight_values
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
from qdq_workbench.conversion.engine.integer_weights import integer_weights
from qdq_workbench.conversion.engine.quantize_model import quantize_model
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel as QuantizedModel
from qdq_workbench.conversion.engine.retarget import retarget
from qdq_workbench.conversion.engine.strip import strip
from qdq_workbench.conversion.files.integer_files import (
    load_integer_weights as load_integer_weights,
)
from qdq_workbench.conversion.files.integer_files import (
    save_integer_weights as save_integer_weights,
)
from qdq_workbench.conversion.files.load_model import load_model as load_model
from qdq_workbench.conversion.files.training_checkpoint import TrainingCheckpoint as TrainingCheckpoint
from qdq_workbench.conversion.transforms.fold_batch_norm import fold_batch_norm
from qdq_workbench.conversion.transforms.merge_lora import merge_lora as merge_lora
from qdq_workbench.conversion.transforms.split_activations import split_activations as split_activations
from qdq_workbench.conversion.transforms.split_attention import split_attention as split_attention
from qdq_workbench.conversion.transforms.split_separable import (
    split_separable_convolutions as split_separable_convolutions,
)
from qdq_workbench.diagnosis.diagnose import diagnose as diagnose
from qdq_workbench.diagnosis.report import Cause as Cause
from qdq_workbench.diagnosis.report import Diagnosis as Diagnosis
from qdq_workbench.errors import PlacementConflictError as PlacementConflictError
from qdq_workbench.errors import QDQError
from qdq_workbench.errors import SpecError as SpecError
from qdq_workbench.export.firmware.save_firmware import FirmwareReport as FirmwareReport
from qdq_workbench.export.firmware.save_firmware import save_firmware as save_firmware
from qdq_workbench.export.litert.tflite_export import TFLiteReport as TFLiteReport
from qdq_workbench.export.litert.tflite_export import export_tflite
from qdq_workbench.export.onnx_export import export_float_onnx as export_float_onnx
from qdq_workbench.export.onnx_export import export_onnx
from qdq_workbench.export.report import ExportReport as ExportReport
from qdq_workbench.foreign.compare import Comparison as Comparison
from qdq_workbench.foreign.compare import compare as compare
from qdq_workbench.foreign.import_qdq import ImportedQDQ as ImportedQDQ
from qdq_workbench.foreign.import_qdq import import_qdq as import_qdq
from qdq_workbench.foreign.lint import LintReport as LintReport
from qdq_workbench.foreign.lint import lint_onnx as lint_onnx
from qdq_workbench.graph.model_graph import ModelGraph
from qdq_workbench.graph.model_graph import Node as Node
from qdq_workbench.graph_builder.reader import build_graph
from qdq_workbench.mct.facade import keras_post_training_quantization as keras_post_training_quantization
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.placement.targets.target import Target as Target
from qdq_workbench.placement.targets.target import get_target as get_target
from qdq_workbench.placement.targets.target import target_names as target_names
from qdq_workbench.planning import explain, plan_placement
from qdq_workbench.post_training.bias_correction import correct_biases as correct_biases
from qdq_workbench.post_training.clip_weights import clip_weights as clip_weights
from qdq_workbench.post_training.codebook import codebook_weights as codebook_weights
from qdq_workbench.post_training.gptq_weights import gptq_weights as gptq_weights
from qdq_workbench.post_training.learn_rounding import learn_rounding as learn_rounding
from qdq_workbench.post_training.norm_statistics import estimate_statistics as estimate_statistics
from qdq_workbench.post_training.rounding.report import RoundedUnit as RoundedUnit
from qdq_workbench.post_training.rounding.report import RoundingReport as RoundingReport
from qdq_workbench.post_training.scale_equalization import equalize_scales as equalize_scales
from qdq_workbench.post_training.shift_negative import shift_negative as shift_negative
from qdq_workbench.post_training.smooth_scales import smooth_scales as smooth_scales
from qdq_workbench.post_training.weights_alone import weights_alone as weights_alone
from qdq_workbench.profiling.latency import Gain as Gain
from qdq_workbench.profiling.latency import LatencyReport as LatencyReport
from qdq_workbench.profiling.latency import LayerLatency as LayerLatency
from qdq_workbench.profiling.latency import OtherLatency as OtherLatency
from qdq_workbench.profiling.profile_onnx import profile_onnx as profile_onnx
from qdq_workbench.profiling.runtime_graph import RuntimeGraph as RuntimeGraph
from qdq_workbench.profiling.runtime_graph import RuntimeKernel as RuntimeKernel
from qdq_workbench.profiling.runtime_graph import read_kernels as read_kernels
from qdq_workbench.quantizers.all_values import AllValuesQuantizer
from qdq_workbench.quantizers.fixed import FixedQuantizer
from qdq_workbench.quantizers.last_value import LastValueQuantizer
from qdq_workbench.quantizers.lsq import LSQQuantizer
from qdq_workbench.quantizers.moving_average import MovingAverageQuantizer
from qdq_workbench.quantizers.quantizer import Quantizer as Quantizer
from qdq_workbench.report.certificate_page import write_certificate_page as write_certificate_page
from qdq_workbench.report.latency import latency_figure as latency_figure
from qdq_workbench.report.pareto import pareto_figure as pareto_figure
from qdq_workbench.report.sensitivity import sensitivity_figure as sensitivity_figure
from qdq_workbench.runtimes.explanation import Explanation as Explanation
from qdq_workbench.runtimes.measured import Island as Island
from qdq_workbench.runtimes.measured_edges import IslandEdge as IslandEdge
from qdq_workbench.spec.framework_info import DefaultDict as DefaultDict
from qdq_workbench.spec.framework_info import FrameworkInfo
from qdq_workbench.spec.framework_info import QuantizationMethod as QuantizationMethod
from qdq_workbench.spec.quantization_spec import LayerConfig, QuantizationSpec
from qdq_workbench.spec.quantize_config import LayerQuantizeConfig as LayerQuantizeConfig
from qdq_workbench.spec.quantize_config import QuantizeConfig
from qdq_workbench.spec.quantizer_spec import QuantizerSpec as QuantizerSpec
from qdq_workbench.verification.certificate import Certificate as Certificate
from qdq_workbench.verification.certificate import certify as certify
from qdq_workbench.verification.file_layers import FileGrid as FileGrid
from qdq_workbench.verification.file_layers import FileLayers as FileLayers
from qdq_workbench.verification.file_layers import read_layers as read_layers
from qdq_workbench.verification.report import VerificationReport as VerificationReport
from qdq_workbench.verification.verify import verify_onnx
from qdq_workbench.verification.verify_tflite import verify_tflite as verify_tflite
from qdq_workbench.wrappers.base import BaseQuantizeWrapper, NonWeightedBaseQuantizeWrapper, WeightedBaseQuantizeWrapper
from qdq_workbench.wrappers.layers import AddQuantizeWrapper as AddQuantizeWrapper
from qdq_workbench.wrappers.qdq import QuantizeDequantize as QuantizeDequantize

__all__ = [
    "AllValuesQuantizer",
    "AutoQDQCase",
    "BNQDQCase",
    "BaseQuantizeWrapper",
    "ConcatQDQCase",
    "CustomQDQInsertionCase",
    "EfficientNetQDQCase",
    "FixedQuantizer",
    "FrameworkInfo",
    "InceptionQDQCase",
    "LSQQuantizer",
    "LastValueQuantizer",
    "LayerConfig",
    "MaxPoolQDQCase",
    "MobileNetQDQCase",
    "ModelGraph",
    "MovingAverageQuantizer",
    "NonWeightedBaseQuantizeWrapper",
    "PlacementPlan",
    "QDQError",
    "QuantizationSpec",
    "QuantizeConfig",
    "ResNetV1QDQCase",
    "ResNetV2QDQCase",
    "ResidualConnectionQDQCase",
    "WeightedBaseQuantizeWrapper",
    "build_graph",
    "calibrate",
    "check_is_quantizable_by_layer_name",
    "correction",
    "explain",
    "export_onnx",
    "export_tflite",
    "fold_batch_norm",
    "foreign",
    "integer_weights",
    "numerics",
    "plan_placement",
    "quantize_model",
    "retarget",
    "search",
    "sensitivity",
    "strip",
    "transforms",
    "verify_onnx",
]

__version__: str
G_NUM_BITS: int
G_NARROW_RANGE: bool
G_SYMMETRIC: bool
