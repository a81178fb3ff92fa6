// The C interface of attest_kernel.h over the CUDA kernels: reads a call, refuses what makes no sense before anything is
// written, enqueues on the caller's stream and returns. Besides the options of SPEC: `segment`, tokens of a segment.
#include <array>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gpu_checks/adapters/attest_kernel.h"
#include "gpu_checks/kernels/cuda/operators.hpp"

namespace attest::cuda {
namespace {

struct Entry {
  const char* op;
  Op id;
  const char* variant;
  Variant variant_id;
  std::array<const char*, 4> moments, companions;
  bool decay, gates, beta, levels, normalize, ridge;
};
constexpr Entry entries[] = {
    {"linear", Op::linear, "masked", Variant::masked, {"S"}, {"z"}, false, false, false, false, true, false},
    {"retention",
     Op::retention,
     "masked",
     Variant::masked,
     {"S"},
     {"z"},
     true,
     false,
     false,
     false,
     true,
     false},
    {"mamba2", Op::mamba2, "masked", Variant::masked, {"S"}, {"z"}, false, true, false, false, true, false},
    {"ahla",
     Op::ahla,
     "masked",
     Variant::masked,
     {"P", "E"},
     {"m", "n"},
     true,
     false,
     false,
     false,
     true,
     false},
    {"hla2",
     Op::hla2,
     "masked",
     Variant::masked,
     {"S", "C", "G"},
     {nullptr, "m", "h"},
     true,
     false,
     false,
     false,
     true,
     true},
    {"hla2",
     Op::hla2,
     "unmasked",
     Variant::unmasked,
     {"S", "C"},
     {nullptr, "m"},
     true,
     false,
     false,
     false,
     true,
     true},
    {"hla2",
     Op::hla2,
     "printed",
     Variant::printed,
     {"S", "C", "G"},
     {nullptr, "m", "h"},
     true,
     false,
     false,
     false,
     true,
     true},
    {"hla3",
     Op::hla3,
     "masked",
     Variant::masked,
     {"SK", "P", "F"},
     {nullptr, "m", "eta"},
     true,
     false,
     false,
     false,
     true,
     false},
    {"hla3",
     Op::hla3,
     "unmasked",
     Variant::unmasked,
     {"SK", "SQ", "P"},
     {nullptr, nullptr, "m"},
     true,
     false,
     false,
     false,
     true,
     false},
    {"delta", Op::delta, "masked", Variant::masked, {"S"}, {}, false, false, true, false, false, false},
    {"gated_delta",
     Op::gated_delta,
     "masked",
     Variant::masked,
     {"S"},
     {},
     false,
     true,
     true,
     false,
     false,
     false},
    {"log_linear",
     Op::log_linear,
     "masked",
     Variant::masked,
     {"S"},
     {"z"},
     false,
     false,
     false,
     true,
     true,
     false},
    {"log_linear_mamba2",
     Op::log_linear_mamba2,
     "masked",
     Variant::masked,
     {"S"},
     {"z"},
     false,
     true,
     false,
     true,
     true,
     false},
    {"log_linear_gated_delta",
     Op::log_linear_gated_delta,
     "masked",
     Variant::masked,
     {"S"},
     {},
     false,
     true,
     true,
     true,
     false,
     false},
};
constexpr int entry_count = static_cast<int>(std::size(entries));
constexpr Type types[] = {Type::bf16, Type::f16, Type::f32};
constexpr const char* type_names[] = {"bf16", "fp16", "fp32"};
constexpr int kernel_count = entry_count * 3;

struct Refusal : std::runtime_error {
  attest_status status;
  Refusal(attest_status s, const std::string& what) : std::runtime_error(what), status(s) {}
};
[[noreturn]] void invalid(const std::string& what) { throw Refusal(ATTEST_INVALID, what); }

const DLTensor* find(const attest_tensor* list, int32_t count, const std::string& name) {
  if (count > 0 && !list) invalid("a list of tensors is null");
  for (int32_t i = 0; i < count; ++i)
    if (list[i].name && name == list[i].name) {
      if (!list[i].tensor) invalid(name + ": the tensor is null");
      return list[i].tensor;
    }
  return nullptr;
}
int64_t elements(const DLTensor& tensor) {
  int64_t n = 1;
  for (int i = 0; i < tensor.ndim; ++i) n *= tensor.shape[i];
  return n;
}

class OnDevice {
 public:
  explicit OnDevice(int device) {
    if (cudaGetDevice(&before_) != cudaSuccess || before_ == device) return;
    changed_ = cudaSetDevice(device) == cudaSuccess;
  }
  ~OnDevice() {
    if (changed_) cudaSetDevice(before_);
  }

 private:
  int before_ = 0;
  bool changed_ = false;
};

class Reader {
 public:
  Reader(const Entry& entry, Type type, const attest_call& call, bool with_data)
      : entry_(entry), type_(type), call_(call), with_data_(with_data) {}

  Call read() {
    Call result;
    result.op = entry_.id, result.variant = entry_.variant_id, result.type = type_;
    const DLTensor &q = field("q", 4), &k = field("k", 4), &v = field("v", 4);
    const DLTensor* o = find(call_.outputs, call_.n_outputs, "o");
    if (!o) invalid("output o is missing");
    device_ = q.device.device_id;
    result.batch = o->ndim == 4 ? o->shape[0] : -1;
    shape("o", *o, {-1, -1, -1, -1});
    result.tokens = o->shape[1];
    result.heads = narrow("heads", o->shape[2]);
    result.value_dim = narrow("dv", o->shape[3]);
    result.key_dim = narrow("d", q.shape[3]);
    if (result.key_dim < 1 || result.value_dim < 1) invalid("d and dv must be at least 1");
    if (result.key_dim > 1024)
      throw Refusal(ATTEST_UNSUPPORTED,
                    "d is " + std::to_string(result.key_dim) + ", at most 1024 is supported");
    result.q = rows("q", q, result, result.key_dim, type_);
    result.k = rows("k", k, result, result.key_dim, type_);
    result.v = rows("v", v, result, result.value_dim, type_);
    result.o = rows("o", *o, result, result.value_dim, type_);
    if (result.o.group != 1) invalid("o must have every head");
    result.sequences = narrow("batch", result.batch);
    if (const DLTensor* bounds = optional("cu_seqlens")) {
      if (bounds->ndim != 1 || bounds->shape[0] < 1 || bounds->dtype.code != 0 || bounds->dtype.bits != 64)
        invalid("cu_seqlens: expected int64 [N+1]");
      if (bounds->strides && bounds->shape[0] > 1 && bounds->strides[0] != 1)
        invalid("cu_seqlens must be contiguous");
      if (result.batch != 1) invalid("cu_seqlens needs batch 1, got " + std::to_string(result.batch));
      result.sequences = narrow("sequences", bounds->shape[0] - 1);
      result.bounds = static_cast<const int64_t*>(pointer("cu_seqlens", *bounds, 8));
      if (!with_data_ && !result.bounds) result.bounds = reinterpret_cast<const int64_t*>(8);
    }
    gates(result);
    options(result);
    if (entry_.levels) {
      const DLTensor& scales = field("level_scales", 4);
      result.levels = narrow("levels", scales.shape[3]);
      int needed = 1;  // of the last token; packed or continued sequences are known on the device alone
      for (int64_t last = result.tokens - 1; last > 0; last >>= 1) ++needed;
      if (!result.bounds && result.levels < needed && result.tokens > 0)
        invalid("level_scales has " + std::to_string(result.levels) + " levels, " +
                std::to_string(result.tokens) + " tokens need " + std::to_string(needed));
      result.level_scales =
          rows("level_scales", scales, result, result.levels, any_type("level_scales", scales));
    }
    states(result, "initial_state.", call_.inputs, call_.n_inputs, result.initial);
    states(result, "final_state.", call_.outputs, call_.n_outputs, result.final);
    device(result);
    return result;
  }

 private:
  static int narrow(const char* what, int64_t n) {
    if (n < 0 || n > INT32_MAX) invalid(std::string(what) + " is " + std::to_string(n));
    return static_cast<int>(n);
  }
  const DLTensor* optional(const std::string& name) const { return find(call_.inputs, call_.n_inputs, name); }
  const DLTensor& field(const std::string& name, int dimensions) const {
    const DLTensor* tensor = optional(name);
    if (!tensor) invalid(name + " is missing");
    if (tensor->ndim != dimensions || !tensor->shape)
      invalid(name + ": expected " + std::to_string(dimensions) + " dimensions, got " +
              std::to_string(tensor->ndim));
    return *tensor;
  }
  static Type any_type(const std::string& name, const DLTensor& tensor) {
    const DLDataType t = tensor.dtype;
    if (t.lanes == 1 && t.code == 2 && t.bits == 32) return Type::f32;
    if (t.lanes == 1 && t.code == 2 && t.bits == 16) return Type::f16;
    if (t.lanes == 1 && t.code == 2 && t.bits == 64) return Type::f64;
    if (t.lanes == 1 && t.code == 4 && t.bits == 16) return Type::bf16;
    invalid(name + ": not a floating-point type that is supported (code " + std::to_string(t.code) + ", " +
            std::to_string(t.bits) + " bits)");
  }
  static void shape(const std::string& name, const DLTensor& tensor, const std::vector<int64_t>& expected) {
    bool fits = tensor.ndim == static_cast<int>(expected.size()) && tensor.shape;
    for (int i = 0; fits && i < tensor.ndim; ++i)
      fits = tensor.shape[i] >= 0 && (expected[i] < 0 || tensor.shape[i] == expected[i]);
    if (fits) return;
    std::string got, want;
    for (int i = 0; tensor.shape && i < tensor.ndim; ++i)
      got += (i ? ", " : "") + std::to_string(tensor.shape[i]);
    for (size_t i = 0; i < expected.size(); ++i)
      want += (i ? ", " : "") + (expected[i] < 0 ? "*" : std::to_string(expected[i]));
    invalid(name + " has shape [" + got + "], expected [" + want + "]");
  }
  void* pointer(const std::string& name, const DLTensor& tensor, int alignment) const {
    if (tensor.device.device_type != 2) invalid(name + " is not on a CUDA device");
    if (tensor.device.device_id != device_) invalid(name + " is on another device than q");
    // Without data: where it will lie behind an aligned address, since the path, and its workspace, depend on that.
    if (!with_data_) return static_cast<char*>(tensor.data) + tensor.byte_offset;
    if (elements(tensor) == 0) return tensor.data;
    if (!tensor.data) invalid(name + ": the data pointer is null");
    char* data = static_cast<char*>(tensor.data) + tensor.byte_offset;
    if (reinterpret_cast<uintptr_t>(data) % alignment != 0)
      invalid(name + ": the data pointer is not aligned to " + std::to_string(alignment) + " bytes");
    cudaPointerAttributes attributes{};
    if (cudaPointerGetAttributes(&attributes, data) != cudaSuccess) {
      cudaGetLastError();
      invalid(name + ": not a pointer that CUDA knows");
    }
    if (attributes.type == cudaMemoryTypeUnregistered)
      invalid(name + ": the data pointer is not device memory");
    if (attributes.type == cudaMemoryTypeDevice && attributes.device != device_)
      invalid(name + ": the data lie on device " + std::to_string(attributes.device) + ", not " +
              std::to_string(device_));
    return data;
  }
  // Strides of a [B, T, heads, D] tensor; row-major where none are given.
  View rows(const std::string& name, const DLTensor& tensor, const Call& call, int columns, Type type) const {
    shape(name, tensor, {call.batch, call.tokens, -1, columns});
    if (any_type(name, tensor) != type) invalid(name + ": not the type that this kernel takes");
    const int64_t heads = tensor.shape[2];
    if (call.heads > 0 && (heads < 1 || call.heads % heads != 0))
      invalid(name + ": " + std::to_string(heads) + " heads do not divide " + std::to_string(call.heads));
    View view;
    view.data = pointer(name, tensor, bytes_of(type));
    view.type = type;
    view.group = heads > 0 ? static_cast<int>(call.heads / heads) : 1;
    view.batch = call.tokens * heads * columns, view.token = heads * columns, view.head = columns,
    view.dim = 1;
    if (tensor.strides)
      view.batch = tensor.strides[0], view.token = tensor.strides[1], view.head = tensor.strides[2],
      view.dim = tensor.strides[3];
    return view;
  }
  View per_token(const std::string& name, const DLTensor& tensor, const Call& call) const {
    shape(name, tensor, {call.batch, call.tokens, call.heads});
    View view;
    view.type = any_type(name, tensor);
    view.data = pointer(name, tensor, bytes_of(view.type));
    view.batch = call.tokens * call.heads, view.token = call.heads, view.head = 1;
    if (tensor.strides)
      view.batch = tensor.strides[0], view.token = tensor.strides[1], view.head = tensor.strides[2];
    return view;
  }
  void gates(Call& result) const {
    if (entry_.gates) {
      const DLTensor *g = optional("g"), *alpha = optional("alpha");
      if (g && alpha) invalid("both g and alpha are given");
      if (!g && !alpha) invalid("g or alpha is missing");
      result.gate.kind = g ? GateKind::log : GateKind::linear;
      result.gate.view = g ? per_token("g", *g, result) : per_token("alpha", *alpha, result);
    }
    if (entry_.beta) result.beta = per_token("beta", field("beta", 3), result);
    if (!entry_.decay) return;
    if (const DLTensor* decay = optional("decay")) {
      shape("decay", *decay, {result.heads});
      if (decay->strides && result.heads > 1 && decay->strides[0] != 1) invalid("decay must be contiguous");
      result.gate.kind = GateKind::constant;
      result.gate.view.type = any_type("decay", *decay);
      result.gate.view.data = pointer("decay", *decay, bytes_of(result.gate.view.type));
    }
  }
  void options(Call& result) const {
    if (call_.n_options > 0 && !call_.options) invalid("the list of options is null");
    for (int32_t i = 0; i < call_.n_options; ++i) {
      const attest_option& option = call_.options[i];
      const std::string key = option.key ? option.key : "";
      if (key == "normalize" && entry_.normalize)
        result.normalize = option.text && std::string(option.text) == "true";
      else if (key == "epsilon" && entry_.normalize)
        result.epsilon = static_cast<float>(option.value);
      else if (key == "ridge" && entry_.ridge)
        result.ridge = static_cast<float>(option.value);
      else if (key == "scale")
        result.scale = static_cast<float>(option.value);
      else if (key == "segment" && option.value >= 0 && option.value < 1e9)
        result.segment = static_cast<int64_t>(option.value);
      else if (key == "decay" && entry_.decay) {
        if (result.gate.kind == GateKind::constant) invalid("decay is given as a field and as an option");
        if (option.value != 1)
          result.gate.kind = GateKind::constant, result.gate.value = static_cast<float>(option.value);
      } else
        invalid("option " + key + " is not one of this operator");
    }
  }
  Moment moment(const std::string& name, const Call& call, const attest_tensor* list, int32_t count, int rows,
                int columns, int& levels, bool companion) const {
    Moment result;
    const DLTensor* tensor = find(list, count, name);
    if (!tensor) return result;
    std::vector<int64_t> expected = {call.sequences, call.heads};
    if (entry_.levels) expected.push_back(-1);
    expected.push_back(rows);
    if (!companion) expected.push_back(columns);
    shape(name, *tensor, expected);
    if (tensor->strides) {
      int64_t stride = 1;
      for (int i = tensor->ndim - 1; i >= 0; stride *= tensor->shape[i], --i)
        if (tensor->shape[i] > 1 && tensor->strides[i] != stride) invalid(name + " must be contiguous");
    }
    if (entry_.levels) {
      const int own = narrow("levels", tensor->shape[2]);
      if (companion && own != levels)
        invalid(name + ": another number of levels than the moment it goes with");
      levels = own;
    }
    const Type type = any_type(name, *tensor);
    void* data = pointer(name, *tensor, bytes_of(type));
    if (!with_data_ || !data) data = static_cast<char*>(data) + 256;  // counting, or empty
    (companion ? result.companion : result.data) = data;
    (companion ? result.companion_type : result.type) = type;
    return result;
  }
  void states(const Call& call, const std::string& prefix, const attest_tensor* list, int32_t count,
              States& result) const {
    for (int i = 0; i < 4 && entry_.moments[i]; ++i) {
      const std::string name = entry_.moments[i];
      const bool square = name == "S" && entry_.id == Op::hla2;
      const int columns = square || name == "SK" || name == "SQ" ? call.key_dim : call.value_dim;
      result.moments[i] =
          moment(prefix + name, call, list, count, call.key_dim, columns, result.levels, false);
      if (!entry_.companions[i] || !call.normalize) continue;
      const Moment m =
          moment(prefix + entry_.companions[i], call, list, count, call.key_dim, 1, result.levels, true);
      result.moments[i].companion = m.companion, result.moments[i].companion_type = m.companion_type;
    }
    if (!entry_.levels) return;
    const DLTensor* position = find(list, count, prefix + "position");
    if (!position) return;
    shape(prefix + "position", *position, {call.sequences});
    if (position->dtype.code != 0 || position->dtype.bits != 64) invalid(prefix + "position: expected int64");
    result.position = static_cast<int64_t*>(pointer(prefix + "position", *position, 8));
    if (!with_data_ && !result.position) result.position = reinterpret_cast<int64_t*>(8);
  }
  void device(Call& result) const {
    result.stream = static_cast<cudaStream_t>(call_.stream);
    if (cudaDeviceGetAttribute(&result.multiprocessors, cudaDevAttrMultiProcessorCount, device_) !=
            cudaSuccess ||
        cudaDeviceGetAttribute(&result.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device_) !=
            cudaSuccess) {
      cudaGetLastError();
      throw Refusal(ATTEST_FAILED, "CUDA device " + std::to_string(device_) + " is not there");
    }
    const OnDevice current(device_);
    result.units = matrix_units();
    if (!with_data_) return;
    if (result.stream) {
      int of_stream = 0;
      if (cudaStreamGetDevice(result.stream, &of_stream) != cudaSuccess) {
        cudaGetLastError();
        invalid("the stream is not one");
      }
      if (of_stream != device_)
        invalid("the stream belongs to device " + std::to_string(of_stream) + ", the tensors to " +
                std::to_string(device_));
    }
  }

  const Entry& entry_;
  const Type type_;
  const attest_call& call_;
  const bool with_data_;
  int device_ = 0;
};

attest_status answer(const attest_call* call, attest_status status, const std::string& message) {
  if (call && call->message && call->message_bytes > 0)
    std::snprintf(call->message, call->message_bytes, "%s", message.c_str());
  return status;
}

template <typename Action>
attest_status guarded(const attest_call* call, Action action) {
  if (!call) return ATTEST_INVALID;
  try {
    return action();
  } catch (const Refusal& refusal) {
    return answer(call, refusal.status, refusal.what());
  } catch (const std::exception& error) {
    return answer(call, ATTEST_FAILED, error.what());
  }
}

size_t needed(const Call& call) {
  size_t bytes = 0;
  enqueue(call, nullptr, bytes);
  return bytes;
}

template <int index>
attest_status workspace(const attest_call* call, size_t* bytes) {
  return guarded(call, [&]() -> attest_status {
    if (!bytes) invalid("bytes is null");
    *bytes = needed(Reader(entries[index / 3], types[index % 3], *call, false).read());
    return ATTEST_OK;
  });
}

template <int index>
attest_status run(const attest_call* call) {
  return guarded(call, [&]() -> attest_status {
    const Call read = Reader(entries[index / 3], types[index % 3], *call, true).read();
    size_t bytes = needed(read);
    if (!call->workspace && bytes > 0)
      invalid("the workspace is null, " + std::to_string(bytes) + " bytes are needed");
    if (call->workspace_bytes < bytes)
      invalid("the workspace has " + std::to_string(call->workspace_bytes) + " bytes, " +
              std::to_string(bytes) + " are needed");
    if (reinterpret_cast<uintptr_t>(call->workspace) % 256 != 0)
      invalid("the workspace is not aligned to 256 bytes");
    char none;  // a null workspace would ask for its size once more
    char* workspace = bytes > 0 ? static_cast<char*>(call->workspace) : &none;
    const OnDevice device(find(call->inputs, call->n_inputs, "q")->device.device_id);
    const Outcome outcome = enqueue(read, workspace, bytes);
    if (!outcome.unsupported.empty()) return answer(call, ATTEST_UNSUPPORTED, outcome.unsupported);
    if (outcome.error != cudaSuccess)
      return answer(call, ATTEST_FAILED,
                    std::string(outcome.where) + ": " + cudaGetErrorName(outcome.error) + ", " +
                        cudaGetErrorString(outcome.error));
    return ATTEST_OK;
  });
}

std::string names[kernel_count], contracts[3];

template <int... index>
const attest_kernel* table(std::integer_sequence<int, index...>) {
  contracts[0] =
      "input=bf16 product=bf16 accumulate=fp32/truncate intermediate=bf16 state=fp32 gate_sum=fp32/chunk "
      "exp=2ulp output=bf16";
  contracts[1] =
      "input=fp16 product=fp16 accumulate=fp32/truncate intermediate=fp16 state=fp32 gate_sum=fp32/chunk "
      "exp=2ulp output=fp16";
  contracts[2] =
      "input=fp32 product=fp32 accumulate=fp32 intermediate=fp32 state=fp32 gate_sum=fp32/chunk exp=2ulp "
      "output=fp32";
  static attest_kernel kernels[kernel_count];
  auto fill = [](int i, auto size, auto go) {
    const Entry& entry = entries[i / 3];
    names[i] = std::string("cuda.") + entry.op + "." + entry.variant + "." + type_names[i % 3];
    const bool direct = entry.id == Op::hla2 && entry.variant_id == Variant::masked,
               stream = types[i % 3] == Type::f32;
    kernels[i] = {names[i].c_str(),
                  entry.op,
                  entry.variant,
                  stream   ? (direct ? "stream algebra=direct" : "stream")
                  : direct ? "chunk c=64 algebra=direct"
                           : "chunk c=64",
                  contracts[i % 3].c_str(),
                  "varlen initial_state final_state strides grouped deterministic",
                  "d=1..1024",
                  "cuda",
                  size,
                  go};
  };
  (fill(index, workspace<index>, run<index>), ...);
  return kernels;
}

}  // namespace
}  // namespace attest::cuda

extern "C" const attest_kernel* attest_kernels(uint32_t abi, size_t sizeof_kernel, int32_t* count) {
  if (abi != ATTEST_ABI || sizeof_kernel != sizeof(attest_kernel)) {
    if (count) *count = ATTEST_ABI;
    return nullptr;
  }
  static const attest_kernel* const kernels =
      attest::cuda::table(std::make_integer_sequence<int, attest::cuda::kernel_count>());
  if (count) *count = attest::cuda::kernel_count;
  return kernels;
}
