import json

import numpy as np
import pytest

from qdq_workbench.verification.file_structure import (
    DequantizedConstant,
    FileStructure,
    QDQPair,
    layout_free_digest,
)

CODES = np.random.default_rng(0).integers(-8, 8, (3, 4, 5)).astype(np.int8)
SCALES = np.float32([0.5, 0.25, 0.5, 0.125])
ZEROS = np.int8([0, 0, 1, 0])


@pytest.mark.parametrize(
    ("dtype", "zero", "ends"),
    [
        ("uint8", 0, (0.0, 127.5)),
        ("uint8", 128, (-64.0, 63.5)),
        ("int8", 0, (-64.0, 63.5)),
        ("int8", -128, (0.0, 127.5)),
    ],
)
def test_the_ends_of_a_pair_are_those_of_its_integers_or_of_its_clip(dtype, zero, ends):
    assert QDQPair("p", 0.5, zero, dtype).ends == ends
    assert QDQPair("p", 0.5, zero, dtype, bounds=(-1.0, 2.0)).ends == (-1.0, 2.0)


class TestDigest:
    def digest(self, codes=CODES, scales=SCALES, zeros=ZEROS, axis=1, block_size=None):
        return layout_free_digest(codes, scales, zeros, axis, block_size)

    def test_it_does_not_depend_on_the_layout(self):
        for order in ((1, 0, 2), (2, 0, 1), (0, 2, 1)):
            assert self.digest(CODES.transpose(order), axis=order.index(1)) == self.digest()
        assert self.digest(CODES[::-1, :, ::-1]) == self.digest()
        swapped = [3, 0, 1, 2]
        assert self.digest(CODES[:, swapped], SCALES[swapped], ZEROS[swapped]) == self.digest()

    def test_channels_of_equal_scales_and_zero_points_are_pooled(self):
        equal = np.int8([0, 0, 0, 0])
        moved = CODES.copy()
        moved[:, 0], moved[:, 2] = CODES[:, 2], CODES[:, 0]
        assert self.digest(moved, zeros=equal) == self.digest(zeros=equal)
        assert self.digest(moved) != self.digest()
        assert self.digest(moved[:, [0, 1]], SCALES[:2], equal[:2]) != self.digest(
            CODES[:, [0, 1]], SCALES[:2], equal[:2]
        )

    def test_every_integer_scale_and_zero_point_counts(self):
        other = CODES.copy()
        other[0, 0, 0] += 1
        assert self.digest(other) != self.digest()
        assert self.digest(scales=np.nextafter(SCALES, np.float32(1))) != self.digest()
        assert self.digest(zeros=ZEROS + np.int8(1)) != self.digest()

    def test_the_width_in_which_scales_are_held_does_not_count(self):
        assert self.digest(scales=SCALES.astype(np.float64), zeros=ZEROS.astype(np.int64)) == self.digest()

    def test_one_scale_in_all(self):
        one = self.digest(scales=np.float32(0.5), zeros=np.int8(0), axis=None)
        assert one == self.digest(CODES.reshape(-1), np.float32([0.5]), np.int8([0]), axis=None)
        assert one == self.digest(np.sort(CODES, axis=None), np.float32(0.5), np.int8(0), axis=None)

    def test_as_many_scales_as_slices_are_needed(self):
        with pytest.raises(ValueError, match="zip"):
            self.digest(scales=SCALES[:3], zeros=ZEROS[:3])

    @pytest.mark.parametrize("axis", [0, 1])
    def test_blocks_of_one_value_on_every_other_axis(self, axis):
        """Of five values in blocks of two, the last block has one."""
        codes = np.moveaxis(np.arange(10, dtype=np.int8).reshape(5, 2), 0, axis)
        scales = np.moveaxis(np.arange(1, 7, dtype=np.float32).reshape(3, 2), 0, axis)
        found = layout_free_digest(codes, scales, np.zeros_like(scales, np.int8), axis, 2)
        rows = [[0, 2], [1, 3], [4, 6], [5, 7], [8], [9]]  # by scale 1, 2, 3...
        flat = np.int8([value for row in rows for value in row])
        one_each = layout_free_digest(flat, np.repeat(np.arange(1, 7), [2, 2, 2, 2, 1, 1]), np.zeros(10, np.int8), 0)
        assert found == one_each
        assert found != layout_free_digest(codes[::-1], scales, np.zeros_like(scales, np.int8), axis, 2)


def test_structures_go_through_json_with_and_without_what_is_unknown():
    pair = QDQPair("p", 0.5, 3, "uint8", bounds=(0.0, 6.0), source="x", readers=("conv",))
    weight = DequantizedConstant("w", (0.5,), (0,), "int8", "digest", axis=1, shape=(2, 3), block_size=16)
    whole = FileStructure({"p": pair}, {"w": weight}, {}, {"c": "hash"}, ("stray",))
    bare = FileStructure({"p": QDQPair("p", 0.5, 3, "uint8")}, {})
    for structure in (whole, bare):
        assert FileStructure.from_dict(json.loads(json.dumps(structure.to_dict()))) == structure
    old = {key: value for key, value in bare.to_dict().items() if key in ("pairs", "weights")}
    assert FileStructure.from_dict(old) == bare
    assert FileStructure.from_dict(whole.to_dict()).biases == {}
    assert FileStructure.from_dict(old).biases is None
