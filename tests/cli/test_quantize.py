"""`quantize` says whether the model that it wrote has its ranges, and what to do if it has not."""


def test_it_says_whether_the_model_is_calibrated(cli):
    code, out, errors = cli("quantize", "model.keras", "-o", "said.keras", "--target", "onnxruntime")
    assert code == 0, errors
    assert "not calibrated: give --calibration-data, or train it" in out
    code, out, errors = cli(
        "quantize", "model.keras", "-o", "said.keras", "--target", "onnxruntime", "--calibration-data", "images.npy"
    )
    assert code == 0, errors
    assert ", calibrated" in out
    assert "nothing to calibrate" not in out
