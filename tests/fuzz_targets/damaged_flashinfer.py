"""Gives damaged files of flashinfer-bench to the importer: python3 damaged_flashinfer.py FOLDER.

FOLDER holds definition.json.N, right.json.N and workloads.jsonl.N, as the plain driver writes them. Each is taken, or
refused by SystemExit with one line that begins with the importer's name; anything else is a fault. Prints how many.
"""

import argparse
import collections
import contextlib
import io
import os
import pathlib
import sys

root = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(root / "gpu_checks/adapters"))
import flashinfer_solution as importer

right = root / "tests/adapters/flashinfer"
fields = ["q=query", "k=key", "v=value", "o=out", "scale=softening"]


def read(path):
    if path.name.startswith("workloads"):
        importer.print_shapes(argparse.Namespace(definition=right / "definition.json", workload=path, field=fields))
    elif path.name.startswith("definition"):
        definition = importer.Definition(path, fields)
        definition.limits(), definition.features(), definition.contract()
    else:
        importer.read_solution(path)


planted = os.environ.get("PLANTED")
counts = collections.Counter()
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            read(path)
            if planted and path.name.endswith(planted):
                raise KeyError(planted)
        counts["taken"] += 1
    except SystemExit as refusal:
        line = str(refusal.code)
        if not line.startswith("flashinfer_solution: ") or not line.isprintable():
            sys.exit(f"{path}: refused without one printable line: {line!r}")
        counts["refused"] += 1
    except BaseException as error:
        sys.exit(f"{path}: {error!r} is no refusal")
print(f"{counts['taken']} taken, {counts['refused']} refused")
