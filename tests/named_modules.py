"""The modules with public names of their own, as docs/names.md lists them."""

_WORDS = {
    "analysis": "LayerCost Metric PlanScores layer_costs",
    "calibration": "apply_calibration calibration_methods tensor_values weight_values",
    "certificates": "Certificate certify write_certificate_page",
    "correction": "clip_weights codebook_weights correct_biases equalize_scales estimate_statistics gptq_weights "
    "learn_rounding shift_negative smooth_scales weights_alone",
    "diagnosis": "Cause Diagnosis diagnose",
    "errors": "PlacementConflictError SpecError",
    "files": "FileGrid FileLayers FileScore TrainingCheckpoint export_float_onnx load_integer_weights load_model "
    "lock_folder parse_json read_layers save_firmware save_integer_weights score_file scratch_folder stoppable "
    "verify_tflite write_atomically",
    "foreign": "Comparison ImportedQDQ LintReport compare import_qdq lint_onnx",
    "mct": "keras_post_training_quantization",
    "profiling": "Gain LayerLatency OtherLatency RuntimeGraph RuntimeKernel profile_onnx read_kernels",
    "results": "CalibrationResult Explanation ExportReport FirmwareReport Island IslandEdge LatencyReport Node "
    "QuantizedModel RoundedUnit RoundingReport SearchResult SearchStep SensitivityEntry SensitivityReport TFLiteReport "
    "VerificationReport latency_figure pareto_figure sensitivity_figure",
    "spec": "DefaultDict LayerQuantizeConfig QuantizationMethod QuantizerSpec",
    "targets": "Target get_target target_names",
    "tfmot": "",
    "transforms": "merge_lora split_activations split_attention split_separable_convolutions",
    "wrappers": "AddQuantizeWrapper QuantizeDequantize Quantizer",
}
MODULES = {module: tuple(words.split()) for module, words in _WORDS.items()}
