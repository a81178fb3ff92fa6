"""An input for the log-linear gated delta rule that no recipe draws, written to the given safetensors file: 1153 tokens, a
key and a value at token 100 alone, every gate open but that of token 5. After token 1024 the value is read from a block of
sixteen chunks, whose left half is closed and whose right half is open: the gates of the halves must not be confused."""
import array
import json
import struct
import sys

tokens, dim, levels = 1153, 64, 12
fields = {"q": [0.0, 1.0] + [0.0] * (dim - 2), "k": [0.0] * dim, "v": [0.0] * dim, "beta": [0.0], "g": [0.0],
          "level_scales": [1.0] * levels}
header, data = {}, b""
for name, row in fields.items():
    values = array.array("f", row * tokens)
    if name == "k":
        values[100 * dim + 1] = 1
    if name == "v":
        values[100 * dim:101 * dim] = array.array("f", [1.0] * dim)
    if name == "beta":
        values[100] = 1
    if name == "g":
        values[5] = -1024
    shape = [1, tokens, 1] + ([len(row)] if len(row) > 1 else [])
    header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * len(values)]}
    data += values.tobytes()
text = json.dumps(header).encode()
with open(sys.argv[1], "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text + data)
