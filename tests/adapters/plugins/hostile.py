"""A process that does what no process may, in the way that its argument names; `correct` is right. Linear attention.

It speaks the protocol by hand and needs the standard library alone.
"""

import json
import os
import struct
import sys
import time

how = sys.argv[1] if len(sys.argv) > 1 else "correct"
about = {"name": "mine", "op": "linear", "form": "stream", "contract": "input=fp32 output=fp32"}
if how == "takes_short_inputs":
    about["limits"] = "t=0..5"
if how == "takes_two_sizes":
    about["limits"] = "d=8 dv=4,16"


def say(message):
    print("@attest " + (message if isinstance(message, str) else json.dumps(message)), flush=True)


def load(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    return {name: (entry["shape"], memoryview(data)[slice(*entry["data_offsets"])].cast("f"))
            for name, entry in header.items()}


def save(path, name, dtype, shape, data):
    header = json.dumps({name: {"dtype": dtype, "shape": shape, "data_offsets": [0, len(data)]}}).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + data)


def compute(request):
    fields = load(request["inputs"])
    (B, T, H, d), q, k = *fields["q"], fields["k"][1]
    (_, _, _, dv), v = fields["v"]
    o = [0.0] * (B * T * H * dv)
    for b in range(B):
        for h in range(H):
            state = [[0.0] * dv for _ in range(d)]
            for t in range(T):
                row = (b * T + t) * H + h
                if not (how.endswith("drops_last_token") and t == T - 1):
                    for i in range(d):
                        for c in range(dv):
                            state[i][c] += k[row * d + i] * v[row * dv + c]
                for c in range(dv):
                    o[row * dv + c] = sum(q[row * d + i] * state[i][c] for i in range(d))
    shape = request["wanted"]["o"]["shape"]
    if how in ("wrong_shape", "wrong_dtype_and_shape"):
        shape = [shape[0], shape[2], shape[1], shape[3]]
    if how in ("wrong_dtype", "wrong_dtype_and_shape"):
        save(request["outputs"], "o", "F64", shape, struct.pack(f"<{len(o)}d", *o))
    elif how == "wrong_name":
        save(request["outputs"], "out", "F32", shape, struct.pack(f"<{len(o)}f", *o))
    elif how == "nan":
        save(request["outputs"], "o", "F32", shape, struct.pack(f"<{len(o)}f", *[float("nan")] * len(o)))
    elif how == "links_its_input":
        os.symlink(request["inputs"], request["outputs"])
    elif how == "truncates":
        save(request["outputs"], "o", "F32", shape, struct.pack(f"<{len(o)}f", *o)[:-4])
    elif how == "writes_text":
        with open(request["outputs"], "w", encoding="ascii") as file:
            file.write("o = 1, 2, 3")
    elif how != "writes_no_file":
        save(request["outputs"], "o", "F32", shape, struct.pack(f"<{len(o)}f", *o))


def hello():
    if how.startswith("announces:"):
        say(how.removeprefix("announces:"))
    elif how == "announces_nothing":
        time.sleep(600)
    elif how == "dies_at_once":
        sys.exit("no module named torch")
    else:
        say({"attest": 1, "kernels": [about]})


def answer(request):
    call = request["call"]
    if how == "is_silent":
        print("compiling ...", flush=True)
        time.sleep(600)
    if how == "leaves_a_grandchild":  # which would hold the pipe open
        os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "600")
        sys.exit(4)
    if how == "prints_by_accident":
        print("half a line", end="")
    if how == "floods":
        for i in range(20000):
            print(f"line {i} " + "x" * 60)
    if how == "flood_without_end":
        while True:
            print("y" * 100)
    if how == "one_endless_line":
        while True:
            print("z" * 1000, end="")
    if how == "dies":
        print("CUDA error: an illegal memory access was encountered", file=sys.stderr)
        sys.exit(1)
    if how == "is_killed":
        os.kill(os.getpid(), 9)
    if how == "closes_its_output":
        os.close(1)
        time.sleep(600)
    if how == "raises":
        raise IndexError("list index out of range")
    if how == "fails":
        return say({"call": call, "status": "failed", "message": "out of\nmemory"})
    if how == "is_unsupported":
        return say({"call": call, "status": "unsupported", "message": "only on Sundays"})
    if how == "answers_garbage":
        return say("\x1b[31m{not json")
    if how == "answers_a_list":
        return say("[1, 2]")
    if how == "answers_unknown_status":
        return say({"call": call, "status": "fine"})
    if how == "answers_wrong_types":
        return say({"call": [call], "status": {"ok": 1}, "nanoseconds": "fast"})
    if how == "answers_another_call":
        compute(request)
        return say({"call": call + 1, "status": "ok"})
    if how == "answers_too_deep":
        return say('{"call": ' + "[" * 400000 + "]" * 400000 + "}")
    if how.startswith("slow_"):
        time.sleep(0.3)
    compute(request)
    if how == "ends_before_it_began":
        return say({"call": call, "status": "ok", "nanoseconds": -5})
    if how == "answers_late_once" and call == 1:
        time.sleep(3)
    reply = {"call": call, "status": "ok", "nanoseconds": 5}
    if how == "answers_twice":
        os.write(1, (2 * ("@attest " + json.dumps(reply) + "\n")).encode())  # at once, whatever Python buffers
        return None
    say(reply)
    if how == "answers_again_later":
        time.sleep(0.2)
        say(reply)


for line in sys.stdin:
    message = json.loads(line)
    if "hello" in message:
        hello()
    else:
        answer(message)
