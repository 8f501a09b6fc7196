"""Regular expressions for names: what `re` finds, in a time that does not grow with the number of ways."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qdq_workbench.errors import SpecError
from qdq_workbench.spec import QuantizationSpec, name_patterns
from qdq_workbench.spec.name_patterns import name_matcher


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("(a+)+$", "a" * 60 + "b", False),
        ("(a|a)*", "a" * 60 + "b", False),
        ("(a|aa)*b", "a" * 60 + "b", True),
        ("(a?){40}a{40}", "a" * 39, False),
        ("(.*)(.*)(.*)(.*)(.*)(.*)(.*)x", "a" * 100, False),
        ("(?=(a+)+$).*b", "a" * 60 + "b", False),
        ("(?<=(?:a|a))(a|a){0,60}b|((a*)*)*", "a" * 60, True),
        (r"(?:block\d+_)*(?:conv|bn)+", "block1_block22_convbn", True),
        ("(?i:(A+)+)B", "a" * 60 + "B", True),
        ("((((((((a+)+)+)+)+)+)+)+)+b", "a" * 60, False),
    ],
)
def test_what_took_for_ever_ends(pattern, name, expected):
    start = time.perf_counter()

    assert name_matcher(pattern)(name) is expected

    assert time.perf_counter() - start < 5  # milliseconds on an idle machine; 2^60 steps before


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("^(?:ab|c){1,2}$", "abcab", False),
        ("^(?:(?:ab)+|c+){1,2}$", "abcab", False),
        ("^(?:(?:ab)+|c+){1,2}$", "ababcc", True),
        ("^(?:ab|c){1,2}$", "abc", True),
        ("^(?:ab|c){2}$", "c", False),
        ("^(?:a|ab){0,1}c$", "aabc", False),
    ],
)
def test_a_repetition_has_its_bounds(pattern, name, expected):
    assert name_matcher(pattern)(name) is expected is bool(re.search(pattern, name))


def test_long_repetitions_of_a_fixed_length_are_one_way_beside_a_backreference():
    """Such an expression is refused if it has too many ways, before there is a name."""
    parts = 4 * r"[a-z]{9}_"
    assert name_matcher(rf"(\d)_{parts}\1")("7_" + 4 * "convblock_" + "7")
    assert not name_matcher(rf"(\d)_{parts}\1")("7_" + 4 * "convblock_" + "8")
    with pytest.raises(SpecError, match="may take for ever"):
        name_matcher(r"(\d)_" + 4 * r"[a-z]{8,9}" + 4 * r"[a-z]{0,9}_" + r"\1")


def patterns():
    """Return expressions with everything that is followed."""
    leaves = st.sampled_from(
        ["a", "b", "_", "[ab]", "[^a]", ".", r"\w", r"\d", "^", "$", r"\b", "(?i:A)", "(?-i:a)", ""]
    )

    def larger(inner):
        repeats = st.sampled_from(["*", "+", "?", "*?", "+?", "{2}", "{1,3}", "{2,}"])
        looks = st.sampled_from(["(?=", "(?!", "(?:", "("])
        return st.one_of(
            st.tuples(inner, inner).map("".join),
            st.tuples(inner, inner).map(lambda parts: f"(?:{parts[0]}|{parts[1]})"),
            st.tuples(inner, repeats).map(lambda parts: f"(?:{parts[0]}){parts[1]}"),
            st.tuples(looks, inner).map(lambda parts: f"{parts[0]}{parts[1]})"),
        )

    return st.recursive(leaves, larger, max_leaves=6)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(patterns(), st.text("aAb_1\n", max_size=6))
def test_following_finds_what_re_finds(pattern, name):
    compiled = re.compile(pattern)
    before = name_patterns._MOST_WAYS
    name_patterns._MOST_WAYS = -1  # so that nothing is left to `re`
    try:
        found = name_matcher(pattern)(name)
    finally:
        name_patterns._MOST_WAYS = before

    assert found is (compiled.fullmatch(name) is not None)


def test_what_cannot_be_followed_is_left_to_re_or_refused():
    assert name_matcher(r"(\w+)_\1")("conv_conv")
    assert not name_matcher(r"(\w+)_\1")("conv_bn")
    with pytest.raises(SpecError, match=r"may take for ever.*glob.*Received: name="):
        name_matcher(r"((a+)+)\1$")
    with pytest.raises(SpecError, match="cannot be parsed"):
        name_matcher("(" * 5000 + "a" + ")" * 5000)


def test_a_specification_refuses_it_when_it_is_written():
    spec = QuantizationSpec()
    spec.add("(a+)+$", match="regex")
    with pytest.raises(SpecError, match="may take for ever"):
        spec.add(r"((a+)+)\1$", match="regex")
