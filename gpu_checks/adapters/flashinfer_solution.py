"""Judges a solution of flashinfer-bench: its definition and solution files become a kernel of a process.

    attest check --process 'python3 gpu_checks/adapters/flashinfer_solution.py serve --definition D.json
        --solution S.json --op linear --form "chunk c=64" --field q=query --field o=out --device cuda'
    python3 gpu_checks/adapters/flashinfer_solution.py shapes --definition D.json --workload W.jsonl --field q=query

`serve` maps attest's fields to the inputs and outputs of the definition (--field ATTEST=THEIRS; equal names need none).
Tensors that lack the batch dimension are given those of batch 1. Axes that the definition fixes become limits; a problem
that does not fit them is not run. Python and Triton sources are loaded as they are; C++ and CUDA ones are built by the
package flashinfer-bench. The contract is the definition's dtypes unless --contract says more. Without --device the
solution is given NumPy arrays. `shapes` prints a workload file as --shape options, random inputs as drawn ones.
The schema is that of flashinfer-bench 0.1; attest judges the values, so the definition's reference is not run.
"""

import argparse
import importlib.util
import json
import os
import re
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from attest_adapter import Unsupported, kernel, serve

formats = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
tensors = ["q", "k", "v", "g", "alpha", "beta", "level_scales", "decay", "cu_seqlens", "o"]
options = {"scale": 1.0, "decay": 1.0, "epsilon": 0.0, "ridge": 0.0}
ranks = {"q": 4, "k": 4, "v": 4, "o": 4, "g": 3, "alpha": 3, "beta": 3, "level_scales": 4}


def refuse(message):
    line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in message[:2000])
    sys.exit(f"flashinfer_solution: {line}")


def has_members(document, kinds):
    """Whether a document is an object with these members of these types; a type in a list: it or null."""
    if not isinstance(document, dict):
        return False
    allowed = {member: (*kind, type(None)) if isinstance(kind, list) else (kind,) for member, kind in kinds.items()}
    return all(type(document.get(member)) in kind for member, kind in allowed.items())


def read_json(path, kinds):
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        refuse(f"{path}: {error}, expected a JSON file of flashinfer-bench")
    for member, kind in kinds.items():
        if not has_members(document, {member: kind}):
            refuse(f"{path}: has no member {member!r} of type {kind.__name__}, expected a file of flashinfer-bench")
    return document


def check_definition(path, document):
    """Axes are constants or variables; tensors are named by known axes and scalars have none."""
    for name, axis in document["axes"].items():
        constant = has_members(axis, {"type": str, "value": int}) and axis["type"] == "const" and axis["value"] > 0
        if not constant and not (has_members(axis, {"type": str}) and axis["type"] == "var"):
            refuse(f"{path}: the axis {name!r}: expected a constant of at least 1 or a variable")
    for name, tensor in {**document["inputs"], **document["outputs"]}.items():
        if not has_members(tensor, {"shape": [list], "dtype": str}) or "shape" not in tensor:
            refuse(f"{path}: {name!r}: expected a tensor with a shape and a dtype")
        for axis in tensor["shape"] or []:
            if not isinstance(axis, str) or axis not in document["axes"]:
                refuse(f"{path}: {name!r}: {axis!r} is no axis, expected of {', '.join(document['axes'])}")


def read_solution(path):
    solution = read_json(path, {"name": str, "definition": str, "spec": dict, "sources": list})
    spec = solution["spec"]
    if not has_members(spec, {"language": str, "entry_point": str, "destination_passing_style": [bool]}):
        refuse(f"{path}: spec: expected language, entry_point FILE::FUNCTION and destination_passing_style")
    for source in solution["sources"]:
        if not has_members(source, {"path": str, "content": str}) or "\0" in source["path"]:
            refuse(f"{path}: sources: expected objects with path and content")
    return solution


def read_workload(line, definition):
    """Sizes of every axis, and which inputs come from files."""
    trace = json.loads(line)
    workload = trace.get("workload", trace) if isinstance(trace, dict) else trace
    if not has_members(workload, {"axes": dict, "inputs": [dict]}):
        raise ValueError("no axes")
    axes = {**{name: definition.fixed(name) for name in definition.json["axes"]}, **workload["axes"]}
    for name, size in axes.items():
        if type(size) is not int or size < 1:
            raise ValueError(f"the axis {name!r} is {size!r}")
    inputs = workload.get("inputs") or {}
    return axes, [name for name, spec in inputs.items() if isinstance(spec, dict) and spec.get("type") == "safetensors"]


class Definition:
    """Names, shapes and dtypes of the definition, and which of attest's fields each tensor is."""

    def __init__(self, path, fields):
        self.json = read_json(path, {"name": str, "axes": dict, "inputs": dict, "outputs": dict})
        check_definition(path, self.json)
        self.inputs, self.outputs = self.json["inputs"], self.json["outputs"]
        self.field_of = {}
        theirs = {**self.inputs, **self.outputs}
        for pair in fields:
            ours, _, name = pair.partition("=")
            if name not in theirs:
                refuse(f"--field {pair}: the definition has no {name!r}, expected one of {', '.join(theirs)}")
            if self.field_of.setdefault(name, ours) != ours:
                refuse(f"--field {pair}: {name!r} is {self.field_of[name]} already")
        for name in theirs:
            if name not in self.field_of and (name in tensors or name in options or name.startswith("final_state.")):
                self.field_of[name] = name
        for name in theirs:
            if name not in self.field_of:
                refuse(f"{path}: {name!r} is no field of attest, expected --field ATTEST={name}")
        self.named = {ours: name for name, ours in self.field_of.items()}
        for field in ("q", "k", "v", "o"):
            if field not in self.named:
                refuse(f"{path}: no tensor is {field}, expected --field {field}=NAME")
            if len(self.spec(self.named[field])["shape"] or []) not in (3, 4):
                refuse(f"{path}: {self.named[field]!r} is {field}, expected [T, H, D] or [B, T, H, D]")

    def spec(self, name):
        return self.inputs.get(name) or self.outputs[name]

    def fixed(self, axis):
        about = self.json["axes"][axis]
        return about["value"] if about["type"] == "const" else None

    def axis(self, field, dimension):
        """The name of a tensor's axis, counted from the last."""
        return self.spec(self.named[field])["shape"][dimension]

    def format(self, field):
        dtype = self.spec(self.named[field])["dtype"]
        if dtype not in formats:
            refuse(f"{self.named[field]} is {dtype}, expected one of {', '.join(formats)}")
        return formats[dtype]

    def packed(self, field):
        """Whether the tensor lacks the batch dimension."""
        return field in ranks and len(self.spec(self.named[field])["shape"]) == ranks[field] - 1

    def limits(self):
        words = []
        for name, field in (("d", "k"), ("dv", "v")):
            size = self.fixed(self.axis(field, -1))
            if size is not None:
                words.append(f"{name}={size}..{size}")
        heads = self.fixed(self.axis("o", -2))
        if heads is not None:
            words.append(f"h={heads}..{heads}")
        if self.packed("o"):
            words.append("b=1..1")
        return " ".join(words)

    def features(self):
        words = []
        if "cu_seqlens" in self.named:
            words.append("varlen")
        if self.axis("q", -2) != self.axis("v", -2) or self.axis("k", -2) != self.axis("v", -2):
            words.append("grouped")
        words += [word for word in ("initial_state", "final_state") if any(f.startswith(word) for f in self.named)]
        return " ".join(words)

    def contract(self):
        inner = self.format("q")
        return f"input={inner} product={inner} intermediate={inner} output={self.format('o')}"


def load_source(solution, folder):
    """The entry point of Python and Triton sources."""
    for source in solution["sources"]:
        path = os.path.normpath(os.path.join(folder, source["path"]))
        if not path.startswith(folder + os.sep):
            refuse(f"the source {source['path']!r} lies outside of its folder")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(source["content"])
    entry, _, function = solution["spec"]["entry_point"].partition("::")
    sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location("flashinfer_solution_entry", os.path.join(folder, entry))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, function):
        refuse(f"{entry} has no function {function!r}")
    return getattr(module, function)


def build(definition_path, solution_path):
    """The entry point of C++ and CUDA sources, in destination-passing style."""
    from flashinfer_bench import Definition as Theirs
    from flashinfer_bench import Solution
    from flashinfer_bench.compile import BuilderRegistry

    with open(definition_path, encoding="utf-8") as one, open(solution_path, encoding="utf-8") as other:
        theirs, solution = Theirs.model_validate_json(one.read()), Solution.model_validate_json(other.read())
    return BuilderRegistry.get_instance().build(theirs, solution).call_destination_passing


def empty(shape, dtype, device):
    if device is None:
        return np.empty(shape, {"bfloat16": "float32"}.get(dtype, dtype))
    import torch

    return torch.empty(shape, dtype=getattr(torch, dtype), device=device)


def run_with(definition, function, destination_passing, device, given):
    """One call: attest's fields and options in, the definition's outputs back by attest's names."""
    axes, arguments = {}, []
    unused = set(given)
    for name, spec in definition.inputs.items():
        field = definition.field_of[name]
        key = field.replace(".", "_")
        unused.discard(key)
        if spec["shape"] is None:
            default = given["k"].shape[-1] ** -0.5 if field == "scale" and given["op"] == "softmax" else options.get(field)
            arguments.append(given.get(key, default))
            continue
        if key not in given:
            raise Unsupported(f"the solution needs {field}, and the problem has none")
        value = given[key]
        if definition.packed(field):
            if value.shape[0] != 1:
                raise Unsupported("the definition has no batch dimension")
            value = value[0]
        if field == "cu_seqlens" and spec["dtype"] == "int32":
            value = value.astype(np.int32) if device is None else value.int()
        for axis, size in zip(spec["shape"], value.shape):
            if axes.setdefault(axis, size) != size or definition.fixed(axis) not in (None, size):
                raise Unsupported(f"the axis {axis} is {definition.fixed(axis) or axes[axis]}, and {name} has {size}")
        arguments.append(value)
    unused -= {"op"}
    if unused:
        raise Unsupported(f"the definition has no {', '.join(sorted(unused))}")
    if destination_passing:
        results = [empty([axes.get(axis, definition.fixed(axis)) for axis in spec["shape"]], spec["dtype"], device)
                   for spec in definition.outputs.values()]
        function(*arguments, *results)
    else:
        results = function(*arguments)
        results = [results] if not isinstance(results, (tuple, list)) else results
    named = dict(zip(map(definition.field_of.get, definition.outputs), results))
    return {field: value[None] if definition.packed(field) else value for field, value in named.items()}


def start(arguments):
    definition = Definition(arguments.definition, arguments.field)
    solution = read_solution(arguments.solution)
    if solution["definition"] != definition.json["name"]:
        refuse(f"the solution is one of {solution['definition']!r}, and the definition is {definition.json['name']!r}")
    folder = tempfile.TemporaryDirectory(prefix="solution-", dir=os.environ.get("ATTEST_FOLDER"))
    in_place = solution["spec"].get("destination_passing_style", True)
    if solution["spec"]["language"] in ("python", "triton"):
        function = load_source(solution, os.path.realpath(folder.name))
    else:
        function, in_place = build(arguments.definition, arguments.solution), True

    @kernel(op=arguments.op, variant=arguments.variant, form=arguments.form, device=arguments.device,
            contract=arguments.contract or definition.contract(), features=definition.features(),
            limits=definition.limits(), name=re.sub(r"[^A-Za-z0-9._-]", "-", solution["name"])[:100])
    def solution_run(**given):
        return run_with(definition, function, in_place, arguments.device, {"op": arguments.op, **given})

    serve()
    folder.cleanup()


def print_shapes(arguments):
    definition = Definition(arguments.definition, arguments.field)
    with open(arguments.workload, encoding="utf-8", errors="backslashreplace") as file:
        for number, line in enumerate(filter(str.strip, file), 1):
            try:
                axes, stored = read_workload(line, definition)
            except (ValueError, RecursionError) as error:
                refuse(f"{arguments.workload}: line {number}: {error}, expected a workload of flashinfer-bench")
            size = {"T": axes[definition.axis("q", -3)], "d": axes[definition.axis("k", -1)],
                    "dv": axes[definition.axis("v", -1)], "H": axes[definition.axis("o", -2)],
                    "B": 1 if definition.packed("q") else axes[definition.axis("q", -4)]}
            for field, key in (("q", "Hq"), ("k", "Hk"), ("v", "Hv")):
                if axes[definition.axis(field, -2)] != size["H"]:
                    size[key] = axes[definition.axis(field, -2)]
            print("--shape " + ",".join(f"{key}={value}" for key, value in size.items()))
            if stored:
                print(f"flashinfer_solution: line {number}: {', '.join(stored)} come from files there and are drawn here",
                      file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    for verb, action in (("serve", start), ("shapes", print_shapes)):
        command = verbs.add_parser(verb)
        command.set_defaults(action=action)
        command.add_argument("--definition", required=True)
        command.add_argument("--field", action="append", default=[], metavar="ATTEST=THEIRS")
        if verb == "shapes":
            command.add_argument("--workload", required=True)
            continue
        command.add_argument("--solution", required=True)
        command.add_argument("--op", required=True)
        command.add_argument("--variant", default="masked")
        command.add_argument("--form", required=True)
        command.add_argument("--contract")
        command.add_argument("--device")
    arguments = parser.parse_args()
    arguments.action(arguments)


if __name__ == "__main__":
    main()
