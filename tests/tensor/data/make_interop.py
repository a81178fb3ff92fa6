# Makes interop.safetensors with the reference implementation of the format (PyPI: safetensors 0.5.3), so that the
# reader is tested on bytes that it did not write itself. Run once, in any environment with that package:
#   python make_interop.py interop.safetensors
import struct
import sys

import safetensors

tensors = {
    "f64": ("float64", [2], struct.pack("<2d", 0.1, -1e300)),
    "f32": ("float32", [3, 1], struct.pack("<3f", 1.5, -2.0**-149, 3.4028234663852886e38)),
    "f16": ("float16", [4], struct.pack("<4H", 0x3C00, 0x0001, 0xFBFF, 0xFC00)),
    "bf16": ("bfloat16", [2, 2], struct.pack("<4H", 0x3F81, 0x0001, 0xFF7F, 0x7F80)),
    "e4m3": ("float8_e4m3fn", [4], bytes([0x38, 0x01, 0xFE, 0x7F])),
    "e5m2": ("float8_e5m2", [4], bytes([0x3C, 0x01, 0xFB, 0x7C])),
    "i64": ("int64", [1, 2], struct.pack("<2q", -(2**63), 2**63 - 1)),
    "i32": ("int32", [2], struct.pack("<2i", -(2**31), 7)),
    "u8": ("uint8", [3], bytes([0, 128, 255])),
    "flag": ("bool", [2], bytes([1, 0])),
    "scalar": ("float32", [], struct.pack("<f", 0.25)),
    "empty \u03bb": ("float32", [0, 5], b""),
}
content = {name: {"dtype": dtype, "shape": shape, "data": data} for name, (dtype, shape, data) in tensors.items()}
with open(sys.argv[1], "wb") as file:
    file.write(safetensors.serialize(content, {"made by": "safetensors " + safetensors.__version__}))
