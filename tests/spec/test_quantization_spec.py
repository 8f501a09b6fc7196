import json

import numpy as np
import pytest

from qdq_workbench.errors import FileAccessError, OutputPathError, SpecError
from qdq_workbench.spec import LayerConfig, QuantizationSpec
from qdq_workbench.tfmot.default_configs import Default8BitQuantizeConfig


def test_one_name():
    spec = QuantizationSpec()
    spec.add("conv", quantize_weight=False, quantization_index=[1, 0], quantize_output=True)
    assert spec.layers == [LayerConfig("conv", quantize_weight=False, quantization_index=[1, 0], quantize_output=True)]


@pytest.mark.parametrize("sequence", [list, tuple])
def test_several_names_with_single_values_and_sequences(sequence):
    spec = QuantizationSpec()
    spec.add(sequence(["a", "b"]), quantize_input=sequence([True, False]), quantize_weight=False)
    assert [(e.name, e.quantize_input, e.quantize_weight) for e in spec.layers] == [
        ("a", True, False),
        ("b", False, False),
    ]


def test_one_index_list_applies_to_every_name():
    spec = QuantizationSpec()
    spec.add(["a", "b"], quantization_index=[0, 1, 2])
    assert [e.quantization_index for e in spec.layers] == [[0, 1, 2], [0, 1, 2]]
    assert spec.layers[0].quantization_index is not spec.layers[1].quantization_index


def test_an_index_list_per_name():
    spec = QuantizationSpec()
    spec.add(["a", "b"], quantization_index=[[0], None])
    assert [e.quantization_index for e in spec.layers] == [[0], None]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": 3}, "name must be a string"),
        ({"name": []}, "non-empty list"),
        ({"name": ""}, "non-empty string"),
        ({"name": ["a", "b"], "quantize_input": [True]}, "2 names were given"),
        ({"name": "a", "quantize_input": [True]}, "single value"),
        ({"name": "a", "quantize_weight": 1}, "True or False"),
        ({"name": "a", "quantization_index": 1}, "list of integers"),
        ({"name": "a", "quantization_index": [-1]}, "from 0 on"),
        ({"name": "a", "match": "globs"}, "Did you mean 'glob'"),
        ({"name": "*_conv", "match": "regex"}, "cannot be parsed.*nothing to repeat.*glob"),
    ],
)
def test_bad_arguments_are_refused_and_leave_the_spec_alone(arguments, message):
    spec = QuantizationSpec()
    with pytest.raises(SpecError, match=message):
        spec.add(**arguments)
    assert spec.layers == []


@pytest.fixture
def spec():
    spec = QuantizationSpec()
    spec.add(["conv_1", "Ünïcode/path"], quantize_input=[True, False])
    spec.add("Add", is_keras_class=True, quantization_index=[1])
    spec.add("block*", match="glob", quantize_output=True)
    return spec


@pytest.mark.parametrize("suffix", [".yaml", ".yml", ".json"])
def test_save_and_load(spec, suffix, tmp_path):
    path = tmp_path / f"spec{suffix}"
    spec.save(path)
    assert QuantizationSpec.load(path) == spec
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_copy_is_independent(spec):
    copy = spec.copy()
    copy.layers[2].quantization_index.append(0)
    copy.add("more")
    assert len(spec.layers) == 4
    assert spec.layers[2].quantization_index == [1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("just text", "list called"),
        ("layers: [{quantize_input: true}]", 'at least a "name"'),
        ("layers: [{name: a, quantise_input: true}]", "Did you mean 'quantize_input'"),
        ("layers: [{name: a, quantize_input: 1}]", "True or False"),
        ("version: 7\nlayers: []", "version"),
        ("layers: [{name: '(', match: regex}]", "cannot be parsed"),
        ("layers: [", "not valid YAML"),
        ("layers: [!!python/object/apply:os.getcwd []]", "not valid YAML"),
    ],
)
def test_bad_files_are_refused(text, message, tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    with pytest.raises(SpecError, match=message):
        QuantizationSpec.load(path)


def test_bad_json_and_suffix(tmp_path):
    path = tmp_path / "spec.json"
    path.write_text("{")
    with pytest.raises(SpecError, match="not valid JSON"):
        QuantizationSpec.load(path)
    with pytest.raises(SpecError, match=r"\.yaml"):
        QuantizationSpec().save(tmp_path / "spec.txt")


def test_unwritable_and_missing_paths(spec, tmp_path):
    with pytest.raises(OutputPathError, match="folder that does not exist"):
        spec.save(tmp_path / "missing" / "spec.json")
    with pytest.raises(FileAccessError):
        QuantizationSpec.load(tmp_path / "missing.json")


def test_html_escapes_names():
    spec = QuantizationSpec()
    spec.add("<img src=x onerror=alert(1)>")
    assert "<img" not in spec._repr_html_()


def test_dictionary_is_json(spec):
    assert QuantizationSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


def test_integers_of_numpy_are_integers():
    spec = QuantizationSpec()
    spec.add("add", quantization_index=[np.int64(1)])
    spec.add(["a", "b"], quantization_index=[(np.int32(0),), None])
    assert [entry.quantization_index for entry in spec.layers] == [[1], [0], None]
    assert QuantizationSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


def test_a_file_that_is_not_text(tmp_path):
    (tmp_path / "spec.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileAccessError, match="not text in UTF-8"):
        QuantizationSpec.load(tmp_path / "spec.json")


@pytest.mark.parametrize("path", [None, 3, "a\0b.json", "n" * 300 + ".json"])
def test_paths_that_cannot_name_a_file(path, tmp_path):
    from qdq_workbench._files import write_text

    with pytest.raises(OutputPathError, match="A path must be"):
        write_text(path if not isinstance(path, str) else f"{tmp_path}/{path}", "text")


def test_a_class_is_no_way_of_matching_and_the_error_says_how_to_name_one():
    with pytest.raises(SpecError, match=r"is_keras_class=True.*Received: match='class'"):
        QuantizationSpec().add("Conv2D", match="class")


def test_a_class_of_the_library_is_known_although_nothing_has_imported_it(tmp_path, fresh):
    spec = QuantizationSpec()
    spec.add("conv", quantize_config=Default8BitQuantizeConfig(["kernel"], [], quantize_output=True))
    spec.save(tmp_path / "spec.json")
    done = fresh.run(
        "from qdq_workbench import QuantizationSpec\n"
        "import sys\n"
        "print('qdq_workbench.tfmot.default_configs' in sys.modules)\n"
        f"config = QuantizationSpec.load({str(tmp_path / 'spec.json')!r}).layers[0].quantize_config\n"
        "print(type(config).__name__, config.weight_attrs, config.quantize_output)\n"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["False", "Default8BitQuantizeConfig ['kernel'] True"]
