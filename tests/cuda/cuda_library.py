"""The library of CUDA kernels (gpu_checks/adapters/attest_kernel.h) called on PyTorch's tensors, on the current stream."""
import ctypes as c

import torch


class Tensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("device_type", c.c_int32), ("device_id", c.c_int32), ("ndim", c.c_int32),
                ("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16), ("shape", c.POINTER(c.c_int64)),
                ("strides", c.POINTER(c.c_int64)), ("byte_offset", c.c_uint64)]


class Named(c.Structure):
    _fields_ = [("name", c.c_char_p), ("tensor", c.POINTER(Tensor))]


class Option(c.Structure):
    _fields_ = [("key", c.c_char_p), ("text", c.c_char_p), ("value", c.c_double)]


class Call(c.Structure):
    _fields_ = [("inputs", c.POINTER(Named)), ("n_inputs", c.c_int32), ("outputs", c.POINTER(Named)),
                ("n_outputs", c.c_int32), ("options", c.POINTER(Option)), ("n_options", c.c_int32),
                ("workspace", c.c_void_p), ("workspace_bytes", c.c_size_t), ("stream", c.c_void_p),
                ("message", c.c_char_p), ("message_bytes", c.c_size_t)]


class Kernel(c.Structure):
    _fields_ = [(name, c.c_char_p) for name in
                ("name", "op", "variant", "form", "contract", "features", "limits", "device")]
    _fields_ += [("workspace", c.CFUNCTYPE(c.c_int32, c.POINTER(Call), c.POINTER(c.c_size_t))),
                 ("run", c.CFUNCTYPE(c.c_int32, c.POINTER(Call)))]


kinds = {torch.float32: (2, 32), torch.float16: (2, 16), torch.bfloat16: (4, 16), torch.int64: (0, 64)}


class Library:
    def __init__(self, path):
        entry = c.CDLL(path).attest_kernels
        entry.restype, entry.argtypes = c.POINTER(Kernel), [c.c_uint32, c.c_size_t, c.POINTER(c.c_int32)]
        count = c.c_int32()
        found = entry(1, c.sizeof(Kernel), c.byref(count))
        if not found:
            raise RuntimeError(f"{path} has interface {count.value}, expected 1")
        self.kernels = {found[i].name.decode(): found[i] for i in range(count.value)}

    def prepare(self, name, inputs, **options):
        """A function that enqueues the call and returns o, with everything allocated already."""
        kernel, keep = self.kernels[name], []

        def named(tensors):
            listed = (Named * len(tensors))()
            for item, (key, x) in zip(listed, tensors.items()):
                shape, strides = (c.c_int64 * x.dim())(*x.shape), (c.c_int64 * x.dim())(*x.stride())
                tensor = Tensor(x.data_ptr(), 2, x.device.index or 0, x.dim(), *kinds[x.dtype], 1, shape, strides, 0)
                item.name, item.tensor = key.encode(), c.pointer(tensor)
                keep.extend((x, shape, strides, tensor))
            return listed

        o = torch.full_like(inputs["v"], float("nan"))
        ins, outs = named(inputs), named({"o": o})
        chosen = (Option * len(options))(*[Option(k.encode(), repr(x).encode(), x) for k, x in options.items()])
        message = c.create_string_buffer(256)
        call = Call(ins, len(ins), outs, 1, chosen, len(chosen), None, 0, torch.cuda.current_stream().cuda_stream,
                    c.cast(message, c.c_char_p), 256)
        size = c.c_size_t()
        if kernel.workspace(c.byref(call), c.byref(size)) != 0:
            raise RuntimeError(f"{name}: {message.value.decode()}")
        space = torch.empty(max(size.value, 1), dtype=torch.uint8, device="cuda")
        call.workspace, call.workspace_bytes = space.data_ptr(), size.value
        keep.extend((space, ins, outs, chosen, message))

        def run():
            if kernel.run(c.byref(call)) != 0:
                raise RuntimeError(f"{name}: {message.value.decode()}")
            return o

        run.keep = keep
        return run
