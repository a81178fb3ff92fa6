"""attest.oracle: exact values against fractions, radii, states, gradients and what it refuses."""

from fractions import Fraction

import numpy as np
import pytest

import attest


def inputs(tokens=6, d=3, dv=2, seed=0):
    rng = np.random.default_rng(seed)
    return {"q": rng.standard_normal((tokens, d)), "k": rng.standard_normal((tokens, d)),
            "v": rng.standard_normal((tokens, dv))}


def exact_hla2(q, k, v, scale):
    """sum_{j <= t} sum_{i <= j} (q_t . k_i)(q_j . k_i) v_j in fractions."""
    q = [[scale * Fraction(x) for x in row] for row in q.tolist()]
    k, v = ([[Fraction(x) for x in row] for row in rows.tolist()] for rows in (k, v))
    dot = lambda a, b: sum(x * y for x, y in zip(a, b))
    return [[sum(dot(q[t], k[i]) * dot(q[j], k[i]) * v[j][c] for j in range(t + 1) for i in range(j + 1))
             for c in range(len(v[0]))] for t in range(len(q))]


@pytest.mark.parametrize("precision", ["adaptive", "double-double"])
def test_values_are_within_their_radius_of_the_exact_ones(precision):
    given = inputs()
    truth = attest.oracle("hla2", **given, scale=0.1, precision=precision)
    assert truth["o"].shape == (1, 6, 1, 2)
    # 0.1 is the double that it is, and no tenth.
    for t, row in enumerate(exact_hla2(**given, scale=Fraction(0.1))):
        for c, exact in enumerate(row):
            value, low, radius = (Fraction(truth[name][0, t, 0, c]) for name in ("o", "o_low", "o_radius"))
            assert abs(exact - (value + low)) <= radius
            assert radius <= abs(exact) * Fraction(2) ** -50


def test_the_exact_text_of_an_option_is_another_number_than_the_float():
    given = inputs()
    tenth, float_of_it = (attest.oracle("hla2", **given, scale=scale) for scale in ("0.1", 0.1))
    assert (tenth["o_low"] != float_of_it["o_low"]).any()
    as_fraction = attest.oracle("hla2", **given, scale=Fraction(1, 10))
    np.testing.assert_array_equal(tenth["o_low"], as_fraction["o_low"])


def test_states_continue_a_sequence():
    given = inputs(8)
    whole = attest.oracle("linear", **given)
    first = attest.oracle("linear", **{name: x[:5] for name, x in given.items()})
    rest = attest.oracle("linear", **{name: x[5:] for name, x in given.items()},
                         initial_state_S=first["final_state.S"])
    np.testing.assert_allclose(rest["o"][0], whole["o"][0, 5:], rtol=1e-12)
    assert {"final_state.S", "final_state.S_low", "final_state.S_radius"} <= set(rest)


def test_gradients_come_with_a_cotangent():
    given = inputs(3)
    do = np.ones((3, 2))
    truth = attest.oracle("linear", **given, do=do)
    # d sum(o) / dv_s = sum_{t >= s} q_t . k_s
    expected = np.triu(given["k"] @ given["q"].T) @ do
    np.testing.assert_allclose(truth["dv"][0, :, 0], expected, rtol=1e-12)
    assert "dq" not in attest.oracle("linear", **given)


def test_every_real_type_is_taken_exactly_and_others_are_refused():
    given = inputs()
    narrow = {name: x.astype(np.float16) for name, x in given.items()}
    wide = {name: x.astype(np.float64) for name, x in narrow.items()}
    np.testing.assert_array_equal(attest.oracle("hla2", **narrow)["o"], attest.oracle("hla2", **wide)["o"])
    with pytest.raises(ValueError, match="complex128"):
        attest.oracle("hla2", **(given | {"q": given["q"] + 0j}))
    with pytest.raises(ValueError, match="no float64 holds"):
        attest.oracle("hla2", **(given | {"q": np.full((6, 3), 2**53 + 1)}))
    fortran = {name: np.asfortranarray(x) for name, x in given.items()}
    np.testing.assert_array_equal(attest.oracle("hla2", **fortran)["o"], attest.oracle("hla2", **given)["o"])


@pytest.mark.parametrize("change, message", [
    ({"operator": "hla9"}, "hla9"),
    ({"variant": "perhaps"}, "perhaps"),
    ({"precision": "good"}, "expected adaptive or double-double"),
    ({"scale": float("nan")}, "expected a finite number"),
    ({"scale": "a third"}, "a third"),
    ({"gamma": 0.5}, "expected an array, or one of the options"),
    ({"beta": np.ones(6)}, "does not take it"),
    ({"q": None}, "expected an array"),
    ({"q": "wide"}, "expected an array"),
    ({"q": [[1, 2], [3]]}, "tensor q"),
    ({"q": np.ones((5, 3))}, "shape"),
    ({"q": np.ma.masked_array(np.ones((6, 3)), mask=True)}, "tensor q: a masked array, expected one without a mask"),
    ({"w": np.ones((6, 3))}, "no operator knows this field"),
])
def test_what_cannot_be_is_refused_in_one_line(change, message):
    arguments = {"operator": "hla2"} | inputs() | change
    with pytest.raises(ValueError) as caught:
        attest.oracle(arguments.pop("operator"), **arguments)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_tokens_give_no_values():
    truth = attest.oracle("linear", q=np.ones((1, 0, 1, 2)), k=np.ones((1, 0, 1, 2)), v=np.ones((1, 0, 1, 3)))
    assert truth["o"].shape == (1, 0, 1, 3)
    assert truth["final_state.S"].shape == (1, 1, 2, 3)
