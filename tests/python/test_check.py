"""The Python package: a right kernel passes, a wrong one fails with a report that repeats it, bad input is one line."""

import ctypes

import numpy as np
import pytest

import attest

linear = {"operator": "linear", "form": "direct", "contract": "input=fp32 output=fp32", "limits": "t=0..4096"}


def masked_linear(q, k, v, scale, first=0):
    q, k, v = (x.transpose(0, 2, 1, 3) for x in (np.float32(scale) * q, k, v))  # [B, H, T, D]
    with np.errstate(invalid="ignore"):  # NaN among the inputs is one of the checks
        return (np.tril(q @ k.swapaxes(2, 3), first) @ v).transpose(0, 2, 1, 3)


def right(q, k, v, scale=1.0):
    return masked_linear(q, k, v, scale)


def forgets_itself(q, k, v, scale=1.0):
    return masked_linear(q, k, v, scale, first=-1)


def verdict_of(result, name):
    return next(c.verdict for c in result.checks if c.check == name)


def test_a_right_kernel_passes():
    attest.assert_right(right, **linear)


def test_a_wrong_kernel_fails_with_a_report_of_ten_lines_that_repeats_it():
    with pytest.raises(AssertionError) as caught:
        attest.assert_right(forgets_itself, seed=7, **linear)
    report = str(caught.value)
    lines = report.splitlines()
    assert len(lines) <= 10
    assert lines[0].startswith("FAIL      forgets_itself: linear, direct")
    assert lines[-1].startswith("replay    attest.check(forgets_itself, operator='linear', form='direct'")
    repeated = eval(lines[-1].removeprefix("replay    "))
    assert repeated.verdict == "FAIL" and len(repeated.checks) == 1
    assert lines[2].split(": ", 1)[1] == str(repeated).splitlines()[2].split(": ", 1)[1]


def test_a_seed_is_drawn_named_and_asks_the_same_questions():
    first = attest.check(right, only="lattice", **linear)
    assert f"seed={first.seed}" in str(first)
    seen = []

    def watched(q, k, v, scale=1.0):
        seen.append(q.tobytes())
        return right(q, k, v, scale)

    attest.check(watched, only="lattice", seed=first.seed, **linear)
    once = list(seen)
    seen.clear()
    attest.check(watched, only="lattice", seed=first.seed, **linear)
    assert once == seen and once
    seen.clear()
    attest.check(watched, only="lattice", seed=first.seed + 1, **linear)
    assert once != seen


def test_arrays_are_views_that_are_read_only_and_outlive_the_call():
    kept = []

    def keeps(q, k, v, scale=1.0):
        kept.append((q, q.copy()))
        assert not q.flags.owndata and not q.flags.writeable and q.ctypes.data % 256 == 0
        return right(q, k, v, scale)

    assert attest.check(keeps, only="lattice", seed=1, **linear)
    assert len(kept) > 3
    for view, copy in kept:
        np.testing.assert_array_equal(view, copy)


def test_a_kernel_that_writes_to_an_input_fails():
    def writes(q, k, v, scale=1.0):
        if q.size:
            ctypes.cast(q.ctypes.data, ctypes.POINTER(ctypes.c_float))[0] += 1.0
        return right(q, k, v, scale)

    result = attest.check(writes, only="lattice", seed=1, **linear)
    assert result.verdict == "FAIL"
    assert "wrote to an input or beside it" in str(result)


def test_bf16_comes_as_float32_and_is_rounded_once():
    contract = "input=bf16 product=bf16 accumulate=fp32 intermediate=bf16 output=bf16"

    def narrow(q, k, v, scale=1.0):
        assert q.dtype == np.float32 and not (q.view(np.uint32) & 0xFFFF).any()
        return right(q, k, v, scale)

    assert attest.check(narrow, operator="linear", form="chunk c=64", contract=contract, seed=3, limits="t=0..512")


def test_states_gates_and_options_go_both_ways():
    def gated(q, k, v, g, initial_state_S=None, scale=1.0):
        batch, tokens, heads, d = q.shape
        S = np.zeros((batch, heads, d, v.shape[3]), np.float32) if initial_state_S is None else initial_state_S.copy()
        o = np.empty(v.shape, np.float32)
        for t in range(tokens):
            S = np.exp(g[:, t])[..., None, None] * S + k[:, t, :, :, None] * v[:, t, :, None, :]
            o[:, t] = np.einsum("bhd,bhdc->bhc", np.float32(scale) * q[:, t], S)
        return {"o": o, "final_state.S": S}

    about = {"operator": "mamba2", "form": "stream", "contract": "input=fp32 output=fp32",
             "features": "initial_state final_state", "limits": "t=0..4096", "seed": 5}
    result = attest.check(gated, **about)
    assert result, str(result)
    assert verdict_of(result, "split") == "PASS"

    def stateless(q, k, v, g, initial_state_S=None, scale=1.0):
        return gated(q, k, v, g, None, scale)

    assert attest.check(stateless, only="split", **about).verdict == "FAIL"


def test_gradients_are_checked_where_they_are_announced():
    def backward(q, k, v, scale=1.0, do=None, sign=1):
        q, k, v = (x.transpose(0, 2, 1, 3) for x in (np.float32(scale) * q, k, v))
        with np.errstate(invalid="ignore"):
            weights = np.tril(q @ k.swapaxes(2, 3))
            outputs = {"o": weights @ v}
        if do is not None:
            do = do.transpose(0, 2, 1, 3)
            dweights = np.tril(do @ v.swapaxes(2, 3))
            outputs |= {"dq": np.float32(scale) * (dweights @ k), "dk": sign * (dweights.swapaxes(2, 3) @ q),
                        "dv": weights.swapaxes(2, 3) @ do}
        return {name: x.transpose(0, 2, 1, 3) for name, x in outputs.items()}

    about = linear | {"features": "backward", "seed": 5, "only": "gradient"}
    assert attest.check(backward, **about).verdict == "PASS"
    wrong = lambda q, k, v, scale=1.0, do=None: backward(q, k, v, scale, do, sign=-1)
    result = attest.check(wrong, **about)
    assert result.verdict == "FAIL" and "in dk" in str(result)


def test_the_format_of_every_output_is_its_own():
    def narrow_state(q, k, v, initial_state_S=None, scale=1.0):
        batch, tokens, heads, d = q.shape
        S = np.zeros((batch, heads, d, v.shape[3]), np.float32) if initial_state_S is None else initial_state_S.copy()
        o = np.empty(v.shape, np.float32)
        for t in range(tokens):
            S += k[:, t, :, :, None] * v[:, t, :, None, :]
            o[:, t] = np.einsum("bhd,bhdc->bhc", np.float32(scale) * q[:, t], S)
        return {"o": o, "final_state.S": S}

    result = attest.check(narrow_state, operator="linear", form="stream", contract="input=fp32 state=bf16 output=fp32",
                          features="initial_state final_state", limits="t=0..512", only="split", seed=2)
    assert result.verdict == "PASS", str(result)


def test_a_problem_that_the_parameters_do_not_name_is_not_run():
    def without_scale(q, k, v):
        return masked_linear(q, k, v, 1.0)

    assert attest.check(without_scale, seed=1, **linear).verdict == "PASS"

    def unsupported(q, k, v, scale=1.0):
        raise attest.Unsupported("not on Mondays")

    result = attest.check(unsupported, seed=1, **linear)
    assert not result and result.verdict == "NOT RUN"
    assert "not on Mondays" in str(result)
    with pytest.raises(AssertionError, match="not on Mondays"):
        attest.assert_right(unsupported, seed=1, **linear)


def test_an_exception_is_a_failure_with_its_message():
    def raises(q, k, v, scale=1.0):
        raise ZeroDivisionError("by nothing")

    result = attest.check(raises, only="lattice", seed=1, **linear)
    assert result.verdict == "FAIL" and "ZeroDivisionError: by nothing" in str(result)


def test_an_exception_is_shown_with_its_line_even_if_it_has_no_text():
    class Silent(Exception):
        def __str__(self):
            raise RuntimeError

    def raises(q, k, v, scale=1.0):
        raise Silent

    result = attest.check(raises, only="lattice", seed=1, **linear)
    assert result.verdict == "FAIL"
    line = raises.__code__.co_firstlineno + 1
    assert f"Silent: its text cannot be made (RuntimeError) ({__file__}:{line})" in str(result)


def test_what_defines_the_operator_has_to_be_taken():
    result = attest.check(right, **(linear | {"operator": "retention"}), seed=1)
    assert result.verdict == "UNDECIDED"
    assert "never run with decay other than 1 (the kernel takes no decay)" in str(result)


def test_an_interrupt_ends_the_check():
    def interrupted(q, k, v, scale=1.0):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attest.check(interrupted, seed=1, **linear)


@pytest.mark.parametrize("result, message", [
    (lambda o: o.astype(np.float64), "the kernel failed: o has dtype float64, expected float32"),
    (lambda o: np.ma.masked_array(o, mask=True), "the kernel failed: the output o is a masked array"),
    (lambda o: o[:, :, :, :0], "has the shape"),
    (lambda o: None, "is no array"),
    (lambda o: {"p": o}, "the output o is missing"),
])
def test_an_output_that_is_none_is_a_failure(result, message):
    outcome = attest.check(lambda q, k, v, scale=1.0: result(right(q, k, v, scale)), only="lattice", seed=1, **linear)
    assert outcome.verdict == "FAIL" and message in str(outcome)


class OnlyDLPack:
    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **kwargs):
        return self.array.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_outputs_may_be_strided_and_come_by_dlpack():
    def through_dlpack(q, k, v, scale=1.0):
        return OnlyDLPack(np.asfortranarray(right(q, k, v, scale)))

    assert attest.check(through_dlpack, only="lattice", seed=1, **linear)


def test_pytorch_tensors_share_the_memory():
    torch = pytest.importorskip("torch")
    contract = "input=bf16 product=bf16 accumulate=fp32 intermediate=bf16 output=bf16"

    def in_torch(q, k, v, scale=1.0):
        assert q.dtype == torch.bfloat16
        q, k, v = (x.float().transpose(1, 2) for x in (scale * q, k, v))
        return ((q @ k.transpose(2, 3)).tril() @ v).transpose(1, 2).bfloat16()

    assert attest.check(in_torch, operator="linear", form="chunk c=64", contract=contract, framework="torch", seed=3,
                        limits="t=0..512")


@pytest.mark.parametrize("change, message", [
    ({"operator": "hla9"}, 'operator "hla9": expected one of ahla'),
    ({"operator": 3}, "op is a int, expected a text"),
    ({"form": "chunk"}, "the width of its chunks, c=WIDTH"),
    ({"contract": "input=fp12"}, "fp12"),
    ({"features": "telepathy"}, "telepathy"),
    ({"limits": "t=9..1"}, "expected NAME=LEAST..MOST"),
    ({"only": "nothing"}, "no such check"),
    ({"seed": -1}, "expected a whole number"),
    ({"seed": "7"}, "expected a whole number"),
    ({"framework": "tinygrad"}, "expected numpy or torch"),
    ({"name": "a b"}, "expected up to 100 characters"),
])
def test_what_cannot_be_is_refused_in_one_line(change, message):
    with pytest.raises(ValueError) as caught:
        attest.check(right, **(linear | change))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_function_that_takes_what_no_problem_has_is_refused():
    with pytest.raises(ValueError, match="the parameter gamma of .* is no field or option"):
        attest.check(lambda q, k, v, gamma: v, **linear)
    with pytest.raises(ValueError, match="the parameter q of .* is positional-only, which is not supported"):
        attest.check(lambda q, k, v, /: v, **linear)
    with pytest.raises(ValueError, match="cannot be called"):
        attest.check(3, **linear)
