"""`certify`: the results of all checks of one exported file, in a form that can be recomputed and compared."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from qdq_workbench._documents import read_document
from qdq_workbench._files import as_path, write_text
from qdq_workbench._versions import versions_of
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.errors import FileAccessError, UnverifiableFileError
from qdq_workbench.export.metadata import graph_digest, read_metadata
from qdq_workbench.foreign.lint import inlined, lint_model, read_whole
from qdq_workbench.onnx_graph.graph import standard_opset
from qdq_workbench.onnx_graph.model_files import file_digest
from qdq_workbench.verification.file_structure import QDQPair
from qdq_workbench.verification.report import VerificationReport
from qdq_workbench.verification.structure_reader import read_structure
from qdq_workbench.verification.verify import verify_model

_FORMAT = "qdq-workbench/certificate"
_PACKAGES = ("qdq-workbench", "keras", "tensorflow", "tensorflow-cpu", "onnx", "onnxruntime", "numpy")
# The fields that must be equal when a certificate is recomputed; the others depend on processor, data and versions.
_LASTING = ("sha256", "graph_sha256", "plan_sha256", "target", "opset", "pairs", "weights", "biases", "lint")


@dataclasses.dataclass(frozen=True)
class Certificate:
    """The results of all checks of one file.

    Args:
        file: Name of the file.
        sha256: Hash of its bytes, including those of its external data files.
        graph_sha256: Hash of its graph, without metadata.
        plan_sha256: Hash of the plan in its metadata; empty for a file that `export_onnx` did not write.
        target: The target that it was exported for; empty for a file that `export_onnx` did not write.
        opset: Its ONNX opset.
        pairs: Per pair on an activation its scale, zero point, type and range.
        weights: Per integer weight its type, shape, axis, block size (if it has blocks), the number, minimum and
            maximum of its scales, and the hash of its integers.
        biases: The number of int32 biases.
        checks: What `verify_onnx` checked: name, whether it passed, detail.
        lsb: How many integers were compared with Keras, how many differ by one step, and the largest difference.
        agreement: Share of samples with the same top-1 answer, 0 to 1; None if it was not measured.
        integer_kernels: Operator -> (nodes on integers, all nodes), in ONNX Runtime.
        float_nodes: The compute nodes that ONNX Runtime runs in float.
        lint: The findings of `lint_onnx`.
        written_with: The package versions that wrote the file.
        checked_with: The package versions that checked it.
        data_sha256: Hash of the samples; empty without data, and for data that are not NumPy arrays.
        report: The report of the verification; None for a certificate that was loaded. It is not saved.
    """

    file: str
    sha256: str
    graph_sha256: str
    plan_sha256: str
    target: str
    opset: int
    pairs: Mapping[str, Mapping[str, Any]]
    weights: Mapping[str, Mapping[str, Any]]
    biases: int
    checks: tuple[Mapping[str, Any], ...]
    lsb: Mapping[str, int]
    agreement: float | None
    integer_kernels: Mapping[str, tuple[int, int]]
    float_nodes: tuple[str, ...]
    lint: tuple[str, ...]
    written_with: Mapping[str, str]
    checked_with: Mapping[str, str]
    data_sha256: str = ""
    report: VerificationReport | None = dataclasses.field(default=None, repr=False, compare=False)

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return all(check["passed"] for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate as a JSON-compatible dictionary."""
        # Through JSON, so that nested tuples become lists, as in a certificate that was loaded from a file.
        fields = json.loads(json.dumps({name: getattr(self, name) for name in _SAVED}))
        return {"format": _FORMAT, "version": 1, "passed": self.passed, **fields}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Certificate:
        """Rebuild a certificate from `to_dict`.

        Args:
            data: The dictionary of `to_dict`, also after a round trip through JSON.

        Raises:
            UnverifiableFileError: If the dictionary is not a certificate of this version.
        """
        if not isinstance(data, Mapping) or data.get("format") != _FORMAT or data.get("version") != 1:
            raise UnverifiableFileError(
                "The dictionary is not a certificate of this version; make one with qdq_workbench.certify(path). "
                f"Received: format={data.get('format') if isinstance(data, Mapping) else type(data).__name__!r}"
            )
        try:
            fields: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
            }
            fields["checks"] = tuple(
                {key: check[key] for key in ("name", "passed", "detail")} for check in data["checks"]
            )
            fields["integer_kernels"] = {name: tuple(counts) for name, counts in fields["integer_kernels"].items()}
            return cls(**{name: value for name, value in fields.items() if name in _SAVED})
        except (AttributeError, KeyError, TypeError) as error:
            raise UnverifiableFileError(
                "The certificate is damaged: a part of it is missing or of the wrong kind. Make it anew. "
                f"Received: {type(error).__name__}: {error}"
            ) from error

    def save(self, path: str | pathlib.Path) -> pathlib.Path:
        """Write the certificate as JSON, atomically.

        Args:
            path: The file to write.

        Returns:
            The path.
        """
        return write_text(path, json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n")

    @classmethod
    def load(cls, path: str | pathlib.Path) -> Certificate:
        """Read a certificate that `save` wrote.

        Args:
            path: The file.

        Raises:
            FileAccessError: If it cannot be read.
            UnverifiableFileError: If it is not a certificate.
        """
        return read_document(
            path, cls.from_dict, what="certificate", made_by="Certificate.save", error=UnverifiableFileError
        )

    def differences(self, other: Certificate) -> list[str]:
        """Return the differences from another certificate of the same file.

        Compared are the hashes of file, graph and plan, target, opset, quantizers, findings of the linter, and whether
        each check passed; not what depends on versions, processor or data.

        Args:
            other: A certificate that was computed again.

        Returns:
            One sentence per difference.
        """
        mine, theirs = self.to_dict(), other.to_dict()
        found = [f"{name} differs" for name in _LASTING if mine[name] != theirs[name]]
        passed = [{check["name"]: check["passed"] for check in one["checks"]} for one in (mine, theirs)]
        # A check that one of them lacks is no difference: with and without the model, other checks are made.
        both = passed[0].keys() & passed[1].keys()
        return found + [
            f"check {name!r} gave {passed[1][name]}" for name in sorted(both) if passed[0][name] != passed[1][name]
        ]


_SAVED = tuple(field.name for field in dataclasses.fields(Certificate) if field.name != "report")


def certify(path: str | pathlib.Path, q_model: QuantizedModel | None = None, data: Any = None) -> Certificate:
    """Verify an exported file and return all results, in a form that can be recomputed and compared.

    Args:
        path: The file, written by `export_onnx`.
        q_model: The model that it was exported from, to compare structure and numbers; None to check the file alone.
        data: Samples to compare on, as for `verify_onnx`.

    Returns:
        The certificate. `save` writes it as JSON, `write_certificate_page` as a page.

    Raises:
        FileAccessError: If the file cannot be read, or is not an ONNX model.
        UnverifiableFileError: If `export_onnx` did not write the file, and no model is given.
        NotQuantizedError: If the model was not made by `quantize_model`.
        UncalibratedError: If the file quantizes a tensor for which the model has no range.
        DataError: If the data do not fit the model.

    Example:
        >>> import keras, tempfile
        >>> from qdq_workbench import calibrate, export_onnx, quantize_model
        >>> image = keras.Input((2,), name="image")
        >>> q_model = quantize_model(keras.Model(image, keras.layers.Dense(1, name="head")(image)))
        >>> _ = calibrate(q_model, np.ones((1, 2)), verbose=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     certificate = certify(export_onnx(q_model, pathlib.Path(folder) / "model.onnx").path, q_model)
        >>> certificate.passed, certificate.target
        (True, 'tensorrt')
    """
    path = as_path(path, FileAccessError)
    proto = read_whole(path)
    sha256 = file_digest(path)  # not after the checks, which take long enough for another export to the path
    model = inlined(proto)
    report = verify_model(path, proto, q_model, data)
    noted = read_metadata(model) or {}
    structure = read_structure(model)
    plan = noted.get("plan")
    figures = report.figures
    return Certificate(
        file=path.name,
        sha256=sha256,
        graph_sha256=graph_digest(model),
        plan_sha256="" if plan is None else _digest(json.dumps(plan, sort_keys=True).encode()),
        target="" if plan is None else plan["target"],
        opset=standard_opset(model),
        pairs={name: _pair(pair) for name, pair in structure.pairs.items()},
        weights={name: _weight(weight) for name, weight in structure.weights.items()},
        biases=len(structure.biases or {}),
        checks=tuple(dataclasses.asdict(check) for check in report.checks),
        lsb=figures.get("lsb", {}),
        agreement=figures.get("agreement"),
        integer_kernels={name: tuple(counts) for name, counts in figures.get("integer_kernels", {}).items()},
        float_nodes=tuple(figures.get("float_nodes", ())),
        lint=tuple(f"{item.rule} {item.node}: {item.message}" for item in lint_model(path, model).findings),
        written_with=noted.get("versions", {}),
        checked_with=versions_of(_PACKAGES),
        data_sha256=_data_digest(data),
        report=report,
    )


def _pair(pair: QDQPair) -> dict[str, Any]:
    return {"scale": pair.scale, "zero_point": pair.zero_point, "dtype": pair.dtype, "range": [*pair.ends]}


def _weight(weight: Any) -> dict[str, Any]:
    scales = {"lowest": min(weight.scale), "highest": max(weight.scale), "count": len(weight.scale)}
    shape = list(weight.shape or ())
    blocks = {} if weight.block_size is None else {"block_size": weight.block_size}
    return {
        "dtype": weight.dtype,
        "shape": shape,
        "axis": weight.axis,
        **blocks,
        "scales": scales,
        "sha256": weight.codes_sha256,
    }


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _data_digest(data: Any) -> str:
    arrays = data.values() if isinstance(data, Mapping) else data if isinstance(data, (list, tuple)) else [data]
    if data is None or not all(isinstance(array, np.ndarray) for array in arrays):
        return ""
    return _digest(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays))
