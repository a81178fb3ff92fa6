"""Decides whether an attention kernel computes what it claims, from Python tests.

    def mine(q, k, v, scale=1.0): ...         # arrays [B, T, H, D] by the names of their fields, options as floats

    def test_mine_is_right():
        attest.assert_right(mine, operator="linear", form="direct", contract="input=fp32 output=fp32")

    truth = attest.oracle("hla2", q=q, k=k, v=v, scale=0.5)      # o, o_low, o_radius, o_magnitude, final_state.S, ...

A kernel gets the fields of a problem by name (initial_state.S as initial_state_S) and its options; a problem with one
that its parameters do not name is not run, unless it has **kwargs. It returns o, or {"o": o, "final_state.S": S}; with
features="backward" it is in some calls given the cotangents do and dfinal_state_S and returns dq, dk ... too.
Arrays are views of the memory of the call: read-only NumPy arrays (bf16, which NumPy lacks, as float32 copies of the same
values; a float32 output is then rounded to bf16), or with framework="torch" tensors of the true type on the CPU. Outputs
may be anything that NumPy or DLPack reads on the host. Operators, fields, options, forms and checks: `attest list`; the
words of contract, features and limits: attest_kernel.h.
What cannot be (an unknown operator, a shape that does not fit) is a ValueError of one line.
"""

import fractions
import inspect
import math
import numbers
import traceback
from dataclasses import dataclass

import numpy as np

from . import _attest

__all__ = ["CheckVerdict", "Result", "Unsupported", "assert_right", "check", "oracle"]

CheckVerdict = _attest.CheckVerdict  # check, verdict, reason

_optional = ("g", "alpha", "beta", "level_scales", "decay", "scale", "normalize", "epsilon", "ridge")
_options = ("scale", "decay", "normalize", "epsilon", "ridge")


class Unsupported(Exception):
    """Raise it for a problem that the kernel is not made for: it is then not run, and not failed."""


@dataclass(frozen=True, repr=False)
class Result:
    """What a check found. True where it passed; str() is the report in at most ten lines."""

    verdict: str  # PASS, FAIL, SUSPECT, UNDECIDED or NOT RUN: the last two prove nothing
    checks: tuple  # of CheckVerdict
    seed: int
    report: str

    @property
    def passed(self):
        return self.verdict == "PASS"

    def __bool__(self):
        return self.passed

    def __str__(self):
        return self.report

    def __repr__(self):
        return f"<attest.Result {self.verdict}, seed {self.seed}>"


def _refuse(what):
    raise ValueError("attest: " + what)


def _text(name, value):
    if not isinstance(value, str):
        _refuse(f"{name} is a {type(value).__name__}, expected a text")
    return value


def _field_name(name):
    return name.replace("initial_state_", "initial_state.", 1).replace("dfinal_state_", "dfinal_state.", 1)


def _exact(key, value):
    """An option as exact text: a float is the very number that it holds, 0.1 not one tenth."""
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, fractions.Fraction):
        return f"{value.numerator}/{value.denominator}"
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if math.isfinite(value):
        return "{}/{}".format(*float(value).as_integer_ratio())
    _refuse(f"option {key}={value}: expected a finite number")


def _as_float64(name, value):
    """The numbers as they are, in float64: all of them must be such numbers."""
    if isinstance(value, np.ma.MaskedArray):
        _refuse(f"tensor {name}: a masked array, expected one without a mask (filled())")
    if hasattr(value, "detach"):  # PyTorch
        value = value.detach().cpu().double()
    elif not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__"):
        value = np.from_dlpack(value)
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        _refuse(f"tensor {name}: {error}")
    if array.dtype.kind not in "fiu":
        _refuse(f"tensor {name}: elements of type {array.dtype}, expected real numbers")
    exact = np.ascontiguousarray(array, np.float64).reshape(array.shape)
    if not np.array_equal(exact.astype(array.dtype), array, equal_nan=array.dtype.kind == "f"):
        _refuse(f"tensor {name}: numbers of type {array.dtype} that no float64 holds")
    return exact


def oracle(operator, *, variant="masked", precision="adaptive", **given):
    """The values of an operator, certified: |exact - (o + o_low)| <= o_radius; o_magnitude sums the absolute terms.

    Fields (q, k, v, g ...) are arrays, options (scale, decay, normalize, epsilon, ridge) numbers or exact texts
    ("3/4"). With the cotangent `do` (and perhaps dfinal_state_X) the gradients dq, dk ... too. precision "adaptive" is
    within 2^-100; "double-double" has radii of at most 2^-60 of the magnitude, hundreds of times faster, and no states.
    """
    fields, options = {}, []
    for name, value in given.items():
        scalar = isinstance(value, (str, numbers.Number, np.bool_)) or (isinstance(value, np.ndarray) and value.ndim == 0)
        if name in _options and scalar:
            options.append(f"{name}={_exact(name, value if isinstance(value, (str, numbers.Number)) else value.item())}")
        elif scalar or value is None:
            _refuse(f"{name}={value!r}: expected an array, or one of the options {', '.join(_options)}")
        else:
            fields[_field_name(name)] = _as_float64(name, value)
    return _attest.oracle(_text("operator", operator), fields, options, _text("variant", variant),
                          _text("precision", precision), "do" in fields)


def _taken(function):
    """What a function takes of a problem: names of parameters, None for all."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        _refuse(f"{function!r} has no signature, expected a function of named parameters")
    if any(p.kind == p.VAR_KEYWORD for p in parameters):
        return None
    known = ("q", "k", "v", "cu_seqlens", "do") + _optional
    for p in parameters:
        if p.kind == p.POSITIONAL_ONLY:
            _refuse(f"the parameter {p.name} of {_name_of(function)} is positional-only, which is not supported: "
                    "fields and options are passed by name")
        named = p.name in known or p.name.startswith(("initial_state_", "dfinal_state_"))
        if p.kind == p.VAR_POSITIONAL or (not named and p.default is p.empty):
            _refuse(f"the parameter {p.name} of {_name_of(function)} is no field or option, expected of: "
                    + ", ".join(known) + ", initial_state_X, dfinal_state_X")
    return {p.name for p in parameters}


def _name_of(function):
    return getattr(function, "__name__", type(function).__name__)


def _from_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _to_bf16(array):
    """float32 to the bits of the nearest bf16, ties to even."""
    bits = np.ascontiguousarray(array).view(np.uint32).reshape(array.shape)
    rounded = ((bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(array), np.uint16(0x7FC0), rounded)


def _words(error):
    """What an exception says, whatever it is made of."""
    try:
        text = str(error)
    except Exception as second:
        text = f"its text cannot be made ({type(second).__name__})"
    return text.encode("utf-8", "backslashreplace").decode()


def _failure(error):
    """Its type, text and the line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)[1:]  # without the call in this file
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {_words(error)}{place}"


class _WrongOutput(Exception):
    pass


def _output(name, array, wanted):
    if isinstance(array, np.ma.MaskedArray):
        raise _WrongOutput(f"the output {name} is a masked array, expected one without a mask (filled())")
    if hasattr(array, "detach"):
        return array.detach()
    if wanted == "bfloat16" and isinstance(array, np.ndarray) and array.dtype == np.float32:
        return _to_bf16(array)
    return array


def _caller(function, taken):
    """(inputs, options, wanted) -> (status, outputs or why), as the extension module calls it."""

    def call(inputs, options, wanted):
        arguments = {}
        for name, array in inputs.items():
            is_bf16 = isinstance(array, np.ndarray) and array.dtype == np.uint16
            arguments[name.replace(".", "_")] = _from_bf16(array) if is_bf16 else array
        for key, value in options.items():
            arguments[key] = True if key == "normalize" else value
        unknown = [] if taken is None else [name for name in arguments if name not in taken]
        if unknown:
            return "unsupported", f"{_name_of(function)} does not take {', '.join(unknown)}"
        try:
            results = function(**arguments)
        except Unsupported as reason:
            return "unsupported", _words(reason)
        except ModuleNotFoundError as missing:  # nothing was computed that could be wrong
            return "unsupported", f"needs the module {missing.name}, which is not installed"
        except Exception as error:
            return "failed", _failure(error)
        if not isinstance(results, dict):
            results = {"o": results}
        try:
            return "ok", {name: _output(name, array, wanted.get(name)) for name, array in results.items()}
        except _WrongOutput as wrong:
            return "wrong output", str(wrong)
        except Exception as error:
            return "failed", _failure(error)

    return call


def _kernel_name(name):
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in name)[:100]
    return kept.strip("_") or "kernel"


def check(function, *, operator, form, contract, variant="masked", features="", limits="", name=None, seed=None,
          full=False, only="", framework="numpy"):
    """Runs the battery (`attest check --battery`) on a Python function, in this process. Returns a Result.

    form: "direct", "stream", "scan" or "chunk c=64 algebra=direct"; contract: what the kernel says about its rounding,
    "input=bf16 product=bf16 accumulate=fp32 output=bf16". features: of varlen initial_state final_state grouped
    backward deterministic batch_invariant nan_contained. seed: drawn when not given; only: glob of the checks.
    """
    if not callable(function):
        _refuse(f"{function!r} cannot be called, expected a function")
    if framework not in ("numpy", "torch"):
        _refuse(f"framework {framework!r}: expected numpy or torch")
    if seed is not None and (not isinstance(seed, numbers.Integral) or not 0 <= seed < 2**64):
        _refuse(f"seed {seed!r}: expected a whole number of 0 .. 2^64 - 1")
    taken = _taken(function)
    about = {"name": _kernel_name(_name_of(function)) if name is None else name, "op": operator, "variant": variant,
             "form": form, "contract": contract, "features": features, "limits": limits,
             "takes": " ".join(n for n in _optional if taken is None or n in taken)}
    for key, value in about.items():
        _text(key, value)
    torch = framework == "torch"
    found = _attest.check(_caller(function, taken), about, torch, None if seed is None else int(seed), bool(full), _text("only", only))
    given = {"operator": operator, "form": form, "contract": contract}
    others = {"variant": (variant, "masked"), "features": (features, ""), "limits": (limits, ""),
              "framework": (framework, "numpy"), "full": (bool(full), False)}
    given |= {key: value for key, (value, default) in others.items() if value != default}
    given |= {"seed": found.seed} | ({"only": found.first_bad} if found.first_bad else {})
    words = ", ".join(f"{key}={value!r}" for key, value in given.items())
    called = _name_of(function) if _name_of(function).isidentifier() else "function"
    replay = f"attest.check({called}, {words})"
    return Result(found.verdict, tuple(found.checks), found.seed, found.summary(replay))


def assert_right(function, **about):
    """check(), as an assertion for pytest: what fails, or proves nothing, is an AssertionError with the report."""
    __tracebackhide__ = True
    result = check(function, **about)
    if not result:
        raise AssertionError(str(result))
