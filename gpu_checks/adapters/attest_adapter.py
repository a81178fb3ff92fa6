"""Makes a Python function a kernel that `attest check --process 'python3 mine.py'` judges.

    from attest_adapter import kernel, serve

    @kernel(op="linear", form="direct", contract="input=fp32 output=fp32")
    def mine(q, k, v, scale=1.0):
        return ...              # o, or {"o": o, "final_state.S": S}
    serve()

Arguments are the fields of the problem by name (initial_state.S as initial_state_S) and its options as floats; a
problem with one that the function does not take is answered with `unsupported`, and so is one for which a module is not
installed. They come as NumPy arrays, bf16 as
float32 of the same value; with device="cpu" or device="cuda" as PyTorch tensors of the true dtype.
With features="backward" the function also takes the cotangents do and dfinal_state_S and returns {"o": o, "dq": dq, ...},
a gradient for every field; a PyTorch function that takes no `do` is differentiated by autograd.
One file; needs NumPy, and PyTorch only where a device is named. The protocol is in PROTOCOL.md.
"""

import hashlib
import inspect
import json
import os
import sys
import time
import traceback

import numpy as np

_kernels = {}
_numpy_types = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8"}
_torch_types = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64"}


class Unsupported(Exception):
    """Raise it for a problem that the kernel is not made for: the case is then not run, and not failed."""


def kernel(op, form, contract, variant="masked", features="", limits="", name=None, device=None):
    """Announces the function below it; the words are those of attest_kernel.h."""

    def register(function):
        title = name or function.__name__
        about = {"name": title, "op": op, "variant": variant, "form": form, "contract": contract,
                 "features": features, "limits": limits}
        _kernels[title] = (function, about, device)
        return function

    return register


def load(path):
    """The tensors of a safetensors file: name -> (dtype, shape, bytes)."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    return {name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])])
            for name, entry in header.items() if name != "__metadata__"}


def save(path, tensors):
    """The same back: name -> (dtype, shape, bytes)."""
    header, end = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + len(data)]}
        end += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, _, data in tensors.values():
            file.write(data)


def _to_numpy(dtype, shape, data):
    array = np.frombuffer(data, _numpy_types[dtype]).reshape(shape)
    return (array.astype("<u4") << 16).view("<f4") if dtype == "BF16" else array


def _to_torch(dtype, shape, data, device):
    import torch

    if device.startswith("cuda") and not torch.cuda.is_available():
        raise Unsupported("PyTorch finds no CUDA device")
    if len(data) == 0:
        return torch.empty(shape, dtype=getattr(torch, _torch_types[dtype]), device=device)
    return torch.frombuffer(bytearray(data), dtype=getattr(torch, _torch_types[dtype])).reshape(shape).to(device)


def _to_bf16(array):
    """float32 to the nearest bf16, ties to even, as bit patterns."""
    bits = np.ascontiguousarray(array, "<f4").view("<u4")
    rounded = ((bits.astype("<u8") + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
    return np.where(np.isnan(array), np.uint16(0x7FC0), rounded)


def _from_result(result, wanted):
    """(dtype, shape, bytes) of an array or tensor, as it is: attest judges its shape and dtype."""
    if hasattr(result, "detach"):
        import torch

        result = result.detach().cpu().contiguous()
        names = {getattr(torch, torch_name): name for name, torch_name in _torch_types.items()}
        return names[result.dtype], result.shape, result.view(-1).view(torch.uint8).numpy().tobytes()
    array = np.asarray(result)
    if wanted == "BF16" and array.dtype == np.float32:
        return "BF16", array.shape, _to_bf16(array).tobytes()
    for name, numpy_type in _numpy_types.items():
        if name != "BF16" and array.dtype == np.dtype(numpy_type):
            return name, array.shape, np.ascontiguousarray(array).tobytes()
    raise TypeError(f"the result has dtype {array.dtype}, expected one of float64, float32, float16")


def _synchronize(device):
    if device is not None and device.startswith("cuda"):
        import torch

        torch.cuda.synchronize()


def _differentiated(function, arguments, cotangents):
    """The outputs, and the gradients of all floating arguments by autograd; zero where an output does not depend on one."""
    import torch

    inputs = {name: x for name, x in arguments.items() if isinstance(x, torch.Tensor) and x.is_floating_point()}
    for x in inputs.values():
        x.requires_grad_(True)
    results = function(**arguments)
    results = results if isinstance(results, dict) else {"o": results}
    seen = {("d" + name).replace(".", "_"): x for name, x in results.items()}
    pairs = [(seen[name], x.to(seen[name].dtype)) for name, x in cotangents.items() if name in seen and seen[name].requires_grad]
    if not pairs:
        raise RuntimeError("no output depends on an input in a way that autograd knows")
    outputs, directions = zip(*pairs)
    gradients = torch.autograd.grad(outputs, list(inputs.values()), directions, allow_unused=True)
    for (name, x), gradient in zip(inputs.items(), gradients):
        results["d" + name.replace("initial_state_", "initial_state.")] = torch.zeros_like(x) if gradient is None else gradient
    return results


def _call(request):
    function, _, device = _kernels[request["kernel"]]
    arguments = {}
    for name, tensor in load(request["inputs"]).items():
        arguments[name.replace(".", "_")] = _to_numpy(*tensor) if device is None else _to_torch(*tensor, device)
    for key, option in request["options"].items():
        arguments[key] = True if option["text"] == "true" else option["value"]
    taken = inspect.signature(function).parameters
    takes_all = any(parameter.kind == parameter.VAR_KEYWORD for parameter in taken.values())
    by_autograd = device is not None and "do" in arguments and "do" not in taken and not takes_all
    cotangents = {name: arguments.pop(name) for name in list(arguments)
                  if by_autograd and (name == "do" or name.startswith("dfinal_state_"))}
    unknown = [name for name in arguments if name not in taken and not takes_all]
    if unknown:
        raise Unsupported(f"{function.__name__} does not take {', '.join(unknown)}")
    _synchronize(device)
    start = time.perf_counter_ns()
    results = _differentiated(function, arguments, cotangents) if by_autograd else function(**arguments)
    _synchronize(device)
    elapsed = time.perf_counter_ns() - start
    if not isinstance(results, dict):
        results = {"o": results}
    save(request["outputs"], {name: _from_result(results[name], about["dtype"])
                              for name, about in request["wanted"].items() if name in results})
    return {"status": "ok", "nanoseconds": elapsed}


def _source_digest():
    """What the record names as the kernel's source: the SHA-256 of the script that was started; where it has imported
    modules that lie beside it, that of all their digests. None if the script is no file."""
    def digest(path):
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()

    try:
        main = os.path.abspath(sys.modules["__main__"].__file__)
        folder = os.path.dirname(main) + os.sep
        beside = sorted({os.path.abspath(module.__file__) for module in list(sys.modules.values())
                         if getattr(module, "__file__", None)})
        beside = [path for path in beside if path.startswith(folder) and "site-packages" not in path
                  and path not in (main, os.path.abspath(__file__))]
        parts = [digest(path) for path in [main, *beside]]
    except (AttributeError, OSError):
        return None
    return parts[0] if len(parts) == 1 else hashlib.sha256("".join(parts).encode()).hexdigest()


def serve():
    """Answers calls until standard input ends. What the kernels print goes to standard error."""
    digest = _source_digest()  # of what runs, not of what the file may become
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def reply(message):
        replies.write("@attest " + json.dumps(message) + "\n")
        replies.flush()

    for line in sys.stdin:
        request = json.loads(line)
        if "hello" in request:
            reply({"attest": 1, "kernels": [about for _, about, _ in _kernels.values()],
                   **({"sha256": digest} if digest else {})})
            continue
        try:
            answer = _call(request)
        except Unsupported as reason:
            answer = {"status": "unsupported", "message": str(reason)}
        except ModuleNotFoundError as missing:  # nothing was computed that could be wrong
            answer = {"status": "unsupported", "message": f"needs the module {missing.name}, which is not installed"}
        except Exception as error:  # the kernel's, whatever it is: attest reports it, and the next call goes on
            traceback.print_exc()
            answer = {"status": "failed", "message": f"{type(error).__name__}: {error}"}
        reply({"call": request["call"], **answer})
