"""QDQ Workbench: quantize Keras 3 models with Q/DQ pairs and export them to clean ONNX files.

    import qdq_workbench as qdq

    q_model = qdq.quantize_model(model, custom_qdq_cases=[qdq.ResNetV1QDQCase()], target="onnxruntime")
    qdq.calibrate(q_model, calibration_batches)
    q_model.compile(...); q_model.fit(...)
    qdq.export_onnx(q_model, "model.onnx")
    qdq.verify_onnx("model.onnx", q_model, data=images).raise_if_failed()

Importing this package does not import TensorFlow: every name is loaded on first use.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from qdq_workbench._interrupts import interrupts_held
from qdq_workbench._keras_registration import register_with_keras

__version__ = "0.1.0"

# Global settings named as in NVIDIA's tensorflow-quantization, read by the planner; see placement/global_grid.py.
G_NUM_BITS: int = 8
G_NARROW_RANGE: bool = True
G_SYMMETRIC: bool = True

#: Every public name -> the module that defines or re-exports it.
_HOMES = {
    "AddQuantizeWrapper": "wrappers",
    "AllValuesQuantizer": "quantizers",
    "AutoQDQCase": "cases",
    "BNQDQCase": "cases",
    "BaseQuantizeWrapper": "wrappers",
    "CalibrationResult": "calibration",
    "Cause": "diagnosis.report",
    "Certificate": "verification.certificate",
    "Comparison": "foreign.compare",
    "ConcatQDQCase": "cases",
    "CustomQDQInsertionCase": "cases",
    "DefaultDict": "spec",
    "Diagnosis": "diagnosis.report",
    "EfficientNetQDQCase": "cases",
    "Explanation": "runtimes",
    "ExportReport": "export.report",
    "FileGrid": "verification.file_layers",
    "FileLayers": "verification.file_layers",
    "FileScore": "analysis.file_score",
    "FirmwareReport": "export.firmware.save_firmware",
    "FixedQuantizer": "quantizers",
    "FrameworkInfo": "spec",
    "Gain": "profiling.latency",
    "ImportedQDQ": "foreign.import_qdq",
    "InceptionQDQCase": "cases",
    "Island": "runtimes.measured",
    "IslandEdge": "runtimes.measured_edges",
    "LSQQuantizer": "quantizers",
    "LastValueQuantizer": "quantizers",
    "LatencyReport": "profiling.latency",
    "LayerConfig": "spec",
    "LayerCost": "analysis.cost",
    "LayerLatency": "profiling.latency",
    "LayerQuantizeConfig": "spec",
    "LintReport": "foreign.lint",
    "MaxPoolQDQCase": "cases",
    "Metric": "analysis.metrics",
    "MobileNetQDQCase": "cases",
    "ModelGraph": "graph",
    "MovingAverageQuantizer": "quantizers",
    "Node": "graph",
    "NonWeightedBaseQuantizeWrapper": "wrappers",
    "OtherLatency": "profiling.latency",
    "PlacementConflictError": "errors",
    "PlacementPlan": "placement.plan",
    "PlanScores": "analysis.plan_scores",
    "QDQError": "errors",
    "QuantizationMethod": "spec",
    "QuantizationSpec": "spec",
    "QuantizeConfig": "spec",
    "QuantizeDequantize": "wrappers",
    "QuantizedModel": "conversion.engine.quantized_model",
    "Quantizer": "quantizers",
    "QuantizerSpec": "spec",
    "ResNetV1QDQCase": "cases",
    "ResNetV2QDQCase": "cases",
    "ResidualConnectionQDQCase": "cases",
    "RoundedUnit": "post_training.rounding.report",
    "RoundingReport": "post_training.rounding.report",
    "RuntimeGraph": "profiling.runtime_graph",
    "RuntimeKernel": "profiling.runtime_graph",
    "SearchResult": "analysis.search_result",
    "SearchStep": "analysis.search_result",
    "SensitivityEntry": "analysis.sensitivity_report",
    "SensitivityReport": "analysis.sensitivity_report",
    "SpecError": "errors",
    "TFLiteReport": "export.litert.tflite_export",
    "Target": "placement.targets",
    "TrainingCheckpoint": "conversion.files.training_checkpoint",
    "VerificationReport": "verification.report",
    "WeightedBaseQuantizeWrapper": "wrappers",
    "apply_calibration": "calibration.calibrate",
    "build_graph": "graph_builder",
    "calibrate": "calibration",
    "calibration_methods": "calibration.methods",
    "certify": "verification.certificate",
    "check_is_quantizable_by_layer_name": "cases",
    "clip_weights": "correction",
    "codebook_weights": "correction",
    "compare": "foreign.compare",
    "correct_biases": "correction",
    "diagnose": "diagnosis",
    "equalize_scales": "correction",
    "estimate_statistics": "correction",
    "explain": "planning",
    "export_float_onnx": "export.onnx_export",
    "export_onnx": "export.onnx_export",
    "export_tflite": "export.litert.tflite_export",
    "fold_batch_norm": "conversion.transforms.fold_batch_norm",
    "get_target": "placement.targets",
    "import_qdq": "foreign.import_qdq",
    "integer_weights": "conversion.engine.integer_weights",
    "keras_post_training_quantization": "mct",
    "latency_figure": "report.latency",
    "layer_costs": "analysis.cost",
    "gptq_weights": "correction",
    "learn_rounding": "correction",
    "lint_onnx": "foreign.lint",
    "load_integer_weights": "conversion.files.integer_files",
    "load_model": "conversion.files.load_model",
    "lock_folder": "_files",
    "parse_json": "_documents",
    "merge_lora": "conversion.transforms.merge_lora",
    "pareto_figure": "report.pareto",
    "plan_placement": "planning",
    "profile_onnx": "profiling.profile_onnx",
    "quantize_model": "conversion.engine.quantize_model",
    "read_kernels": "profiling.runtime_graph",
    "read_layers": "verification.file_layers",
    "retarget": "conversion.engine.retarget",
    "save_firmware": "export.firmware.save_firmware",
    "save_integer_weights": "conversion.files.integer_files",
    "score_file": "analysis.file_score",
    "scratch_folder": "_scratch",
    "search": "analysis.search",
    "sensitivity": "analysis.sensitivity",
    "sensitivity_figure": "report.sensitivity",
    "shift_negative": "correction",
    "smooth_scales": "correction",
    "weights_alone": "correction",
    "split_activations": "conversion.transforms.split_activations",
    "split_attention": "conversion.transforms.split_attention",
    "split_separable_convolutions": "conversion.transforms.split_separable",
    "stoppable": "_interrupts",
    "strip": "conversion.engine.strip",
    "target_names": "placement.targets",
    "tensor_values": "calibration.values",
    "verify_onnx": "verification.verify",
    "verify_tflite": "verification.verify_tflite",
    "weight_values": "calibration.values",
    "write_atomically": "_files",
    "write_certificate_page": "report.certificate_page",
}
_MODULES = ("correction", "foreign", "numerics", "transforms")
#: Modules that tell the other names, each with the names in its `__all__`; these are found at the root, too.
_NAMED_MODULES = """
    analysis calibration certificates correction diagnosis errors files foreign mct profiling results spec targets
    tfmot transforms wrappers
""".split()  # noqa: SIM905
#: The names that the root tells.
_TOLD = """
    AllValuesQuantizer AutoQDQCase BNQDQCase BaseQuantizeWrapper ConcatQDQCase CustomQDQInsertionCase
    EfficientNetQDQCase FixedQuantizer FrameworkInfo InceptionQDQCase LSQQuantizer LastValueQuantizer LayerConfig
    MaxPoolQDQCase MobileNetQDQCase ModelGraph MovingAverageQuantizer NonWeightedBaseQuantizeWrapper PlacementPlan
    QDQError QuantizationSpec QuantizeConfig ResNetV1QDQCase ResNetV2QDQCase ResidualConnectionQDQCase
    WeightedBaseQuantizeWrapper build_graph calibrate check_is_quantizable_by_layer_name explain export_onnx
    export_tflite fold_batch_norm integer_weights plan_placement quantize_model retarget search sensitivity strip
    verify_onnx
""".split()  # noqa: SIM905

__all__ = [*_TOLD, *_MODULES]  # noqa: PLE0604 - all are strings


def __getattr__(name: str) -> Any:
    with interrupts_held():  # TensorFlow and others cannot be imported again after an interrupted import
        return _loaded(name)


def _loaded(name: str) -> Any:
    if name in _MODULES or name in _NAMED_MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"qdq_workbench has no attribute {name!r}. {_similar(name)}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


@functools.lru_cache(maxsize=64)  # pytest, doctest and others ask for the same few names again and again
def _similar(name: str) -> str:
    from qdq_workbench.errors import nearest_names

    return nearest_names(name, [*_HOMES, *_MODULES, *_NAMED_MODULES])


def __dir__() -> list[str]:
    return sorted(__all__)


register_with_keras()
