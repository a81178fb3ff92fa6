"""Makes the files of this folder with the package flashinfer-bench (0.1.2): python3 make.py, in its virtual environment.

Linear attention with names, axes and layouts of their own; one solution returns its output, the other is given it and
forgets the diagonal of the mask.
"""

import pathlib

from flashinfer_bench.data import (AxisConst, AxisVar, BuildSpec, Definition, RandomInput, ScalarInput, Solution,
                                   SourceFile, TensorSpec, Trace, Workload)

here = pathlib.Path(__file__).parent
sources = {
    "right": ("def run(query, key, value, softening):\n"
              "    q, k, v = (x.transpose(1, 0, 2) for x in (query * np.float32(softening), key, value))\n"
              "    return (np.tril(q @ k.swapaxes(1, 2)) @ v).transpose(1, 0, 2)\n"),
    "wrong": ("def run(query, key, value, softening, out):\n"
              "    q, k, v = (x.transpose(1, 0, 2) for x in (query * np.float32(softening), key, value))\n"
              "    out[...] = (np.tril(q @ k.swapaxes(1, 2), helper.last) @ v).transpose(1, 0, 2)\n"),
}
tensor = TensorSpec(shape=["tokens", "heads", "key_size"], dtype="float32")
definition = Definition(
    name="linear_attention_h2_d8", op_type="linear_attention",
    axes={"tokens": AxisVar(), "heads": AxisConst(value=2), "key_size": AxisConst(value=8), "value_size": AxisVar()},
    inputs={"query": tensor, "key": tensor,
            "value": TensorSpec(shape=["tokens", "heads", "value_size"], dtype="float32"),
            "softening": TensorSpec(shape=None, dtype="float32")},
    outputs={"out": TensorSpec(shape=["tokens", "heads", "value_size"], dtype="float32")},
    reference="import numpy as np\n\n\n" + sources["right"])
(here / "definition.json").write_text(definition.model_dump_json(indent=1) + "\n")

for name, source in sources.items():
    files = [SourceFile(path="main.py", content="import numpy as np\nimport helper\n\n\n" + source),
             SourceFile(path="helper.py", content="last = -1\n")]
    solution = Solution(
        name=f"{name} numpy", definition=definition.name, author="attest", sources=files,
        spec=BuildSpec(language="python", target_hardware=["cpu"], entry_point="main.py::run",
                       destination_passing_style=name == "wrong"))
    (here / f"{name}.json").write_text(solution.model_dump_json(indent=1) + "\n")

inputs = {"query": RandomInput(), "key": RandomInput(), "value": RandomInput(), "softening": ScalarInput(value=1.0)}
traces = [Trace(definition=definition.name, workload=Workload(axes={"tokens": t, "value_size": w}, inputs=inputs, uuid=f"w{t}"))
          for t, w in ((17, 8), (64, 4))]
(here / "workloads.jsonl").write_text("".join(trace.model_dump_json() + "\n" for trace in traces))
