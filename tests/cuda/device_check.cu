// Every CUDA kernel on the device against its definition in fp64 (direct masked sums; HLA by its proved compositions),
// through the C interface: values, final states, splits, packing, grouped heads, strides, reruns, refusals; then times.
// Prints a line per case; exit status 0 all as expected, 1 something is not, 77 no GPU.
// `device_check check|small|reruns|wide|time|variants [GLOB]`: small, for sanitizers; reruns, a thousand calls; wide, past 2^31
// elements; variants, times of normalised calls, ridge, `printed` and `unmasked`.
// rms: |error| / |o| over the tensor; worst: largest error of a row over the root mean square of that row of o.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "gpu_checks/adapters/attest_kernel.h"

namespace {

#define CUDA(call)                                                                  \
  do {                                                                              \
    const cudaError_t cuda_error = (call);                                          \
    if (cuda_error != cudaSuccess)                                                  \
      std::printf("%s: %s\n", #call, cudaGetErrorString(cuda_error)), std::exit(1); \
  } while (0)

enum Kind { bf16, f16, f32, i64 };
constexpr int width[] = {2, 2, 4, 8};

struct Array {  // on the device, row-major, freed at the end of the program
  std::vector<int64_t> shape;
  Kind kind = f32;
  void* data = nullptr;
  int64_t count() const {
    int64_t n = 1;
    for (auto s : shape) n *= s;
    return n;
  }
};
std::vector<void*> owned;
Array make(std::vector<int64_t> shape, Kind kind) {
  Array a{shape, kind, nullptr};
  const size_t bytes = std::max<int64_t>(a.count(), 1) * width[kind];
  CUDA(cudaMalloc(&a.data, bytes));
  static const bool poison = !std::getenv("ATTEST_NO_POISON");  // initcheck must see what nobody has written
  if (poison) CUDA(cudaMemset(a.data, 0xff, bytes));            // NaN
  owned.push_back(a.data);
  return a;
}
void free_all() {
  for (void* p : owned) cudaFree(p);
  owned.clear();
}

__device__ double read(const void* p, int kind, int64_t i) {
  return kind == bf16  ? double(__bfloat162float(static_cast<const __nv_bfloat16*>(p)[i]))
         : kind == f16 ? double(__half2float(static_cast<const __half*>(p)[i]))
                       : double(static_cast<const float*>(p)[i]);
}
__device__ void write(void* p, int kind, int64_t i, double x) {
  if (kind == bf16)
    static_cast<__nv_bfloat16*>(p)[i] = __float2bfloat16_rn(float(x));
  else if (kind == f16)
    static_cast<__half*>(p)[i] = __float2half_rn(float(x));
  else
    static_cast<float*>(p)[i] = float(x);
}
__host__ __device__ uint64_t mix(uint64_t x) {
  x ^= x >> 33, x *= 0xff51afd7ed558ccdull, x ^= x >> 33, x *= 0xc4ceb9fe1a85ec53ull, x ^= x >> 33;
  return x;
}
// recipe 0: about normal times a; 1: uniform in [a, b]; 2: uniform, one in 40 is b - 1e4 and one in 60 -infinity
__global__ void draw(void* p, int kind, int64_t n, uint64_t seed, int recipe, double a, double b) {
  for (int64_t i = blockIdx.x * int64_t{256} + threadIdx.x; i < n; i += gridDim.x * int64_t{256}) {
    const uint64_t bits = mix(i * 0x9e3779b97f4a7c15ull + seed);
    double x = 0;
    if (recipe == 0) {
      for (int j = 0; j < 4; ++j) x += double(bits >> (16 * j) & 0xffff) / 65536 - 0.5;
      x *= 1.7320508075688772 * a;
    } else {
      x = a + (b - a) * double(bits >> 11) / 9007199254740992.0;
      if (recipe == 2 && bits % 40 == 0) x = -1e4;
      if (recipe == 2 && bits % 60 == 1) x = -INFINITY;
    }
    write(p, kind, i, x);
  }
}
uint64_t seed = 1;
Array random(std::vector<int64_t> shape, Kind kind, int recipe, double a, double b = 0) {
  Array r = make(shape, kind);
  if (r.count()) draw<<<1024, 256>>>(r.data, kind, r.count(), mix(++seed), recipe, a, b);
  CUDA(cudaGetLastError());
  return r;
}

// Rows of unit length, for the delta rules.
__global__ void unit_rows(void* p, int kind, int64_t rows, int columns) {
  const int64_t r = blockIdx.x;
  double sum = 0;
  for (int c = 0; c < columns; ++c) sum += read(p, kind, r * columns + c) * read(p, kind, r * columns + c);
  for (int c = threadIdx.x; c < columns; c += 32)
    write(p, kind, r * columns + c, read(p, kind, r * columns + c) / sqrt(sum));
}

// ---- the definition in fp64 -------------------------------------------------------------------------------------------
struct Rows {  // [T, heads, columns] of one sequence
  const void* p;
  int kind;  // 4: double
  int heads, columns;
  __device__ double at(int64_t t, int h, int all, int c) const {
    const int64_t i = (t * heads + h / (all / heads)) * columns + c;
    return kind == 4 ? static_cast<const double*>(p)[i] : read(p, kind, i);
  }
};
// o_t = sum_{s<=t} lambda G(t,s) (x_t.y_s) z_s; log gates in fp64, -infinity counted apart. The last column of z may be 1.
struct Direct {
  Rows x, y, z;
  double x_scale, y_scale;
  const double* gate_sum;  // [T, H] inclusive
  const int* zeros;
  int power;
  bool z_one;            // a further column of ones
  const double* z_more;  // or this column [T, H]
  const float* lambda;
  int levels;
  double* o;               // [T, H, columns]
  bool exclusive = false;  // read before the token's own gate and term
};
__global__ void direct_rows(Direct d, int heads, int columns) {
  __shared__ double w[128];
  __shared__ double row[1024];
  const int64_t t = blockIdx.x / heads;
  const int h = blockIdx.x % heads;
  for (int c = threadIdx.x; c < d.x.columns; c += 128) row[c] = d.x_scale * d.x.at(t, h, heads, c);
  double sum[3] = {0, 0, 0};  // up to 384 columns
  const int64_t until = d.exclusive ? t - 1 : t;
  for (int64_t begin = 0; begin <= until; begin += 128) {
    __syncthreads();
    const int64_t s = begin + threadIdx.x;
    double weight = 0;
    if (s <= until && d.zeros[until * heads + h] == d.zeros[s * heads + h]) {
      for (int c = 0; c < d.x.columns; ++c) weight += row[c] * d.y.at(s, h, heads, c);
      weight *= d.y_scale * exp(d.power * (d.gate_sum[until * heads + h] - d.gate_sum[s * heads + h]));
      if (d.levels) weight *= d.lambda[(t * heads + h) * d.levels + (64 - __clzll(t ^ s))];
    }
    w[threadIdx.x] = weight;
    __syncthreads();
    const int size = int(min(int64_t{128}, until + 1 - begin));
    for (int j = 0; j < 3; ++j) {
      const int c = threadIdx.x + 128 * j;
      if (c >= columns) continue;
      for (int i = 0; i < size; ++i) {
        const double z = c < d.z.columns ? d.z.at(begin + i, h, heads, c)
                         : d.z_one       ? 1.0
                                         : d.z_more[((begin + i) * heads + h)];
        sum[j] += w[i] * z;
      }
    }
  }
  for (int j = 0; j < 3; ++j)
    if (const int c = threadIdx.x + 128 * j; c < columns) d.o[(t * heads + h) * columns + c] = sum[j];
}
__global__ void add_scaled(double* to, const double* from, double scale, int64_t count) {
  for (int64_t i = blockIdx.x * int64_t{256} + threadIdx.x; i < count; i += gridDim.x * int64_t{256})
    to[i] += scale * from[i];
}
__global__ void add_rows(double* to, Rows rows, double scale, int heads, int64_t count) {
  for (int64_t i = blockIdx.x * int64_t{256} + threadIdx.x; i < count; i += gridDim.x * int64_t{256}) {
    const int c = i % rows.columns, h = i / rows.columns % heads;
    to[i] += scale * rows.at(i / rows.columns / heads, h, heads, c);
  }
}
// The delta rules: y <- alpha_s (y - beta_s (y.k_s) k_s) from t down.
__global__ void direct_delta(Rows q, Rows k, Rows v, double scale, const double* gate, const float* beta,
                             const float* lambda, int levels, double* o, int heads) {
  extern __shared__ double y[];
  __shared__ double dot;
  const int64_t t = blockIdx.x / heads;
  const int h = blockIdx.x % heads, d = q.columns;
  for (int c = threadIdx.x; c < d; c += 32) y[c] = scale * q.at(t, h, heads, c);
  double sum[8] = {};
  for (int64_t s = t; s >= 0; --s) {
    __syncwarp();
    double own = 0;
    for (int c = threadIdx.x; c < d; c += 32) own += y[c] * k.at(s, h, heads, c);
    for (int j = 16; j; j /= 2) own += __shfl_xor_sync(~0u, own, j);
    dot = own * beta[s * heads + h];
    const double weight = dot * (levels ? lambda[(t * heads + h) * levels + (64 - __clzll(t ^ s))] : 1.f);
    for (int j = 0; j < 8; ++j)
      if (const int c = threadIdx.x + 32 * j; c < v.columns) sum[j] += weight * v.at(s, h, heads, c);
    const double alpha = exp(gate[s * heads + h]);
    for (int c = threadIdx.x; c < d; c += 32)
      y[c] = alpha == 0 ? 0 : alpha * (y[c] - dot * k.at(s, h, heads, c));
  }
  for (int j = 0; j < 8; ++j)
    if (const int c = threadIdx.x + 32 * j; c < v.columns) o[(t * heads + h) * v.columns + c] = sum[j];
}
__global__ void compare(const double* expected, int ecolumns, const void* got, int kind, int64_t rows,
                        int columns, double epsilon, bool divide, double* sums, int64_t* bad) {
  const int64_t r = blockIdx.x;
  __shared__ double se[128], so[128], me[128];
  double e2 = 0, o2 = 0, m = 0;
  for (int c = threadIdx.x; c < columns; c += 128) {
    double want = expected[r * ecolumns + c];
    if (divide) want /= expected[r * ecolumns + columns] + epsilon;
    const double have = read(got, kind, r * columns + c), e = fabs(have - want);
    if (!(e < 1e300))
      atomicAdd(reinterpret_cast<unsigned long long*>(bad), 1ull);
    else
      e2 += e * e, o2 += want * want, m = fmax(m, e);
  }
  se[threadIdx.x] = e2, so[threadIdx.x] = o2, me[threadIdx.x] = m;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 1; i < 128; ++i) e2 += se[i], o2 += so[i], m = fmax(m, me[i]);
    sums[3 * r] = e2, sums[3 * r + 1] = o2,
             sums[3 * r + 2] = o2 > 0  ? m / sqrt(o2 / columns)
                               : m > 0 ? 1e30
                                       : 0;
  }
}

// ---- a case -------------------------------------------------------------------------------------------------------
using Fields = std::map<std::string, Array>;
using Options = std::map<std::string, std::pair<std::string, double>>;

const attest_kernel* kernels = nullptr;
int32_t kernel_count = 0;
const attest_kernel* kernel(const std::string& name) {
  for (int i = 0; i < kernel_count; ++i)
    if (name == kernels[i].name) return &kernels[i];
  return nullptr;
}

struct Prepared {  // an attest_call and what it points to
  const Fields given, wanted;
  const Options chosen;
  std::vector<DLTensor> tensors;
  std::vector<std::vector<int64_t>> strides;
  std::vector<attest_tensor> in, out;
  std::vector<attest_option> options;
  char message[256] = "";
  attest_call call{};
  Prepared(const Fields& inputs, const Fields& outputs, const Options& opts, cudaStream_t stream = nullptr)
      : given(inputs), wanted(outputs), chosen(opts) {
    tensors.reserve(inputs.size() + outputs.size()), strides.reserve(inputs.size() + outputs.size());
    auto add = [&](const std::pair<const std::string, Array>& item, std::vector<attest_tensor>& list) {
      const Array& a = item.second;
      std::vector<int64_t> s(a.shape.size());
      int64_t step = 1;
      for (int i = int(s.size()) - 1; i >= 0; --i) s[i] = step, step *= a.shape[i];
      strides.push_back(s);
      DLTensor t{};
      t.data = a.data;
      t.device = {2, 0};
      t.ndim = int(a.shape.size());
      t.dtype = {uint8_t(a.kind == bf16 ? 4 : a.kind == i64 ? 0 : 2), uint8_t(8 * width[a.kind]), 1};
      t.shape = const_cast<int64_t*>(a.shape.data());
      t.strides = strides.back().data();
      tensors.push_back(t);
      list.push_back({item.first.c_str(), &tensors.back()});
    };
    for (auto& f : given) add(f, in);
    for (auto& f : wanted) add(f, out);
    for (auto& o : chosen) options.push_back({o.first.c_str(), o.second.first.c_str(), o.second.second});
    call.inputs = in.data(), call.n_inputs = int(in.size());
    call.outputs = out.data(), call.n_outputs = int(out.size());
    call.options = options.data(), call.n_options = int(options.size());
    call.stream = stream;
    call.message = message, call.message_bytes = sizeof message;
  }
  DLTensor& tensor(const std::string& name) {
    for (auto* list : {&in, &out})
      for (auto& t : *list)
        if (name == t.name) return const_cast<DLTensor&>(*t.tensor);
    std::printf("no tensor %s\n", name.c_str());
    std::exit(1);
  }
};
bool run(const attest_kernel& k, Prepared& p, bool release = false) {
  size_t bytes = 0;
  attest_status status = k.workspace(&p.call, &bytes);
  if (status == ATTEST_OK) {
    Array workspace = make({int64_t(bytes)}, bf16);
    p.call.workspace = workspace.data, p.call.workspace_bytes = bytes;
    status = k.run(&p.call);
  }
  if (status != ATTEST_OK) {
    std::printf("  status %d: %s\n", status, p.message);
    return false;
  }
  const cudaError_t e = cudaDeviceSynchronize();
  if (e != cudaSuccess) std::printf("  %s: %s\n", k.name, cudaGetErrorString(e)), std::exit(1);
  if (release) {  // what the call worked in; the last that was allocated
    CUDA(cudaFree(owned.back()));
    owned.pop_back();
  }
  return true;
}
std::vector<char> bytes_of(const Array& a) {
  std::vector<char> host(a.count() * width[a.kind]);
  CUDA(cudaMemcpy(host.data(), a.data, host.size(), cudaMemcpyDeviceToHost));
  return host;
}
Array rows_of(const Array& a, int64_t first, int64_t last) {  // of [1, T, ...], no copy
  Array r = a;
  int64_t row = 1;
  for (size_t i = 2; i < a.shape.size(); ++i) row *= a.shape[i];
  r.data = static_cast<char*>(a.data) + first * row * width[a.kind];
  r.shape[1] = last - first;
  return r;
}

struct Shape {
  int64_t tokens;
  int heads, q_heads, k_heads, v_heads, d, dv;
};
struct Problem {
  std::string op, variant = "masked";
  Kind kind;
  Shape shape;
  Fields fields;
  Options options;
  bool normalize = false;
  bool delta() const { return op.find("delta") != std::string::npos; }
  bool levels() const { return op.find("log_linear") == 0; }
  double option(const char* name, double otherwise) const {
    return options.count(name) ? options.at(name).second : otherwise;
  }
  bool gated() const {
    return op.find("mamba2") != std::string::npos || op.find("gated") != std::string::npos;
  }
};
int bits(int64_t n) {
  int b = 0;
  for (; n > 0; n >>= 1) ++b;
  return b;
}
Problem draw_problem(const std::string& op, const std::string& variant, Kind kind, Shape s, int gate_recipe,
                     double decay, bool normalize) {
  Problem p{op, variant, kind, s, {}, {}, normalize};
  const double size = std::pow(double(s.d), -0.25);
  p.fields["q"] = random({1, s.tokens, s.q_heads, s.d}, kind, normalize ? 1 : 0, normalize ? 0 : size, size);
  p.fields["k"] = random({1, s.tokens, s.k_heads, s.d}, kind, normalize ? 1 : 0, normalize ? 0 : size, size);
  p.fields["v"] = random({1, s.tokens, s.v_heads, s.dv}, kind, 0, 1);
  if (p.delta() && s.tokens)
    unit_rows<<<unsigned(s.tokens * s.k_heads), 32>>>(p.fields["k"].data, kind, s.tokens * s.k_heads, s.d);
  if (p.gated())
    p.fields["g"] = random({1, s.tokens, s.heads}, f32, gate_recipe, gate_recipe == 2 ? -3 : -0.2, 0);
  if (p.delta()) p.fields["beta"] = random({1, s.tokens, s.heads}, f32, 1, 0, 1);
  if (p.levels())
    p.fields["level_scales"] =
        random({1, s.tokens, s.heads, bits(std::max<int64_t>(s.tokens - 1, 0)) + 1}, f32, 1, 0.2, 1);
  if (decay != 1) p.options["decay"] = {std::to_string(decay), double(float(decay))};
  if (normalize) p.options["normalize"] = {"true", 1};
  return p;
}

struct Reference {
  double* o;
  int columns;
};
Reference reference(const Problem& p) {
  const Shape& s = p.shape;
  const int64_t n = s.tokens;
  std::vector<double> sums(n * s.heads), plain(n * s.heads);
  std::vector<int> zeros(n * s.heads);
  std::vector<char> host;
  if (p.gated()) host = bytes_of(p.fields.at("g"));
  const double decay = p.option("decay", 1), ridge = p.option("ridge", 0);
  for (int h = 0; h < s.heads; ++h)
    for (int64_t t = 0; t < n; ++t) {
      const int64_t i = t * s.heads + h;
      double g = p.gated() ? double(reinterpret_cast<const float*>(host.data())[i]) : std::log(decay);
      plain[i] = g;
      const bool zero = std::isinf(g);
      if (zero) g = 0;
      sums[i] = (t ? sums[i - s.heads] : 0) + g, zeros[i] = (t ? zeros[i - s.heads] : 0) + zero;
    }
  auto upload = [&](const auto& v) {
    void* d;
    CUDA(cudaMalloc(&d, std::max<size_t>(8, v.size() * sizeof v[0])));
    owned.push_back(d);
    CUDA(cudaMemcpy(d, v.data(), v.size() * sizeof v[0], cudaMemcpyHostToDevice));
    return d;
  };
  const double* gate_sum = static_cast<double*>(upload(sums));
  const double* gates = static_cast<double*>(upload(plain));
  const int* zero_count = static_cast<int*>(upload(zeros));
  auto rows = [&](const char* name) {
    const Array& a = p.fields.at(name);
    return Rows{a.data, a.kind, int(a.shape[2]), int(a.shape[3])};
  };
  const Rows q = rows("q"), k = rows("k"), v = rows("v");
  auto buffer = [&](int columns) {
    void* d;
    CUDA(cudaMalloc(&d, std::max<int64_t>(8, n * s.heads * columns * 8)));
    owned.push_back(d);
    return static_cast<double*>(d);
  };
  const double scale = p.option("scale", 1);
  const float* lambda = p.levels() ? static_cast<const float*>(p.fields.at("level_scales").data) : nullptr;
  const int levels = p.levels() ? int(p.fields.at("level_scales").shape[3]) : 0;
  auto lin = [&](Rows x, Rows y, Rows z, int power, bool extra, const double* more, double x_scale,
                 double y_scale = 1, bool exclusive = false) {
    const int columns = z.columns + extra;
    double* o = buffer(columns);
    Direct d{x,    y,      z,      x_scale, y_scale,  gate_sum, zero_count, power, extra && !more,
             more, lambda, levels, o,       exclusive};
    if (n) direct_rows<<<unsigned(n * s.heads), 128>>>(d, s.heads, columns);
    CUDA(cudaGetLastError());
    return o;
  };
  auto as_rows = [&](double* o, int columns) { return Rows{o, 4, s.heads, columns}; };
  const bool e = p.normalize;
  if (p.delta()) {
    double* o = buffer(s.dv);
    if (n)
      direct_delta<<<unsigned(n * s.heads), 32, s.d * 8>>>(
          q, k, v, scale, gates, static_cast<const float*>(p.fields.at("beta").data), lambda, levels, o,
          s.heads);
    CUDA(cudaGetLastError());
    return {o, s.dv};
  }
  if (p.op == "ahla") {
    double* r = lin(q, k, v, 1, e, nullptr, scale);
    Rows z = as_rows(r, s.dv + e);
    double* o = lin(q, k, z, 1, false, nullptr, scale);
    return {o, s.dv + e};
  }
  const auto add = [&](double* to, const double* from, double by, int columns) {
    if (n && by != 0) add_scaled<<<1024, 256>>>(to, from, by, n * s.heads * columns);
    CUDA(cudaGetLastError());
    return to;
  };
  const auto with_ridge = [&](double* o) {
    return ridge == 0 ? o : add(o, lin(q, q, v, 1, e, nullptr, scale, scale), ridge, s.dv + e);
  };
  if (p.op == "hla2" && p.variant == "masked") {
    double* a = lin(q, k, k, 1, false, nullptr, scale);
    return {with_ridge(lin(q, as_rows(a, s.d), v, 2, e, nullptr, scale)), s.dv + e};
  }
  if (p.op == "hla2" && p.variant == "unmasked") {
    double* a = lin(q, k, k, 1, false, nullptr, scale);
    if (n) add_rows<<<1024, 256>>>(a, q, ridge * scale, s.heads, n * s.heads * s.d);
    return {lin(as_rows(a, s.d), q, v, 1, e, nullptr, 1, scale), s.dv + e};
  }
  if (p.op == "hla2" && p.variant == "printed") {
    double* a = lin(q, k, k, 1, false, nullptr, scale);
    double* u = lin(as_rows(a, s.d), q, v, 1, e, nullptr, 1, scale);
    double* b = lin(k, q, v, 1, e, nullptr, 1, scale, true);
    return {with_ridge(add(u, lin(q, k, as_rows(b, s.dv + e), 1, false, nullptr, scale), -1, s.dv + e)),
            s.dv + e};
  }
  if (p.op == "hla3" && p.variant == "unmasked") {
    double* a = lin(q, k, k, 1, false, nullptr, scale);
    double* b = lin(as_rows(a, s.d), q, q, 1, false, nullptr, 1, scale * scale);
    return {lin(as_rows(b, s.d), k, v, 1, e, nullptr, 1), s.dv + e};
  }
  if (p.op == "hla3" && p.variant == "masked") {
    double* a = lin(q, k, k, 1, false, nullptr, scale);
    double* r = lin(q, k, v, 1, e, nullptr, scale);
    return {lin(q, as_rows(a, s.d), as_rows(r, s.dv + e), 3, false, nullptr, scale), s.dv + e};
  }
  return {lin(q, k, v, 1, e, nullptr, scale), s.dv + e};
}
struct Error {
  double rms = 0, worst = 0;
  int64_t bad = 0;
};
Error error_of(const Problem& p, const Reference& r, const Array& o) {
  const int64_t rows = p.shape.tokens * p.shape.heads;
  Error e;
  if (!rows) return e;
  double* sums;
  int64_t* bad;
  CUDA(cudaMalloc(&sums, rows * 24));
  CUDA(cudaMalloc(&bad, 8));
  CUDA(cudaMemset(bad, 0, 8));
  compare<<<unsigned(rows), 128>>>(r.o, r.columns, o.data, o.kind, rows, p.shape.dv, 0, p.normalize, sums,
                                   bad);
  CUDA(cudaGetLastError());
  std::vector<double> host(rows * 3);
  CUDA(cudaMemcpy(host.data(), sums, rows * 24, cudaMemcpyDeviceToHost));
  CUDA(cudaMemcpy(&e.bad, bad, 8, cudaMemcpyDeviceToHost));
  double e2 = 0, o2 = 0;
  for (int64_t i = 0; i < rows; ++i)
    e2 += host[3 * i], o2 += host[3 * i + 1], e.worst = std::max(e.worst, host[3 * i + 2]);
  e.rms = o2 > 0 ? std::sqrt(e2 / o2) : e2;
  cudaFree(sums), cudaFree(bad);
  return e;
}

int failures = 0;
void verdict(bool good, const std::string& what, const Error* e = nullptr) {
  if (!good) ++failures;
  if (e)
    std::printf("%s %-78s rms %.2e worst %.2e%s\n", good ? "ok  " : "FAIL", what.c_str(), e->rms, e->worst,
                e->bad ? " NON-FINITE" : "");
  else
    std::printf("%s %s\n", good ? "ok  " : "FAIL", what.c_str());
}
const char* kind_names[] = {"bf16", "fp16", "fp32"};
// A gross gate, not a bound (that is the battery's): a hundred roundings of the format, root mean square.
double gate(Kind kind) { return kind == bf16 ? 0x1p-9 * 10 : kind == f16 ? 0x1p-12 * 10 : 0x1p-25 * 100; }
std::string name_of(const Problem& p) { return "cuda." + p.op + "." + p.variant + "." + kind_names[p.kind]; }
std::string text(const Problem& p) {
  const Shape& s = p.shape;
  return name_of(p) + " T=" + std::to_string(s.tokens) + " H=" + std::to_string(s.heads) + "/" +
         std::to_string(s.q_heads) + "/" + std::to_string(s.k_heads) + "/" + std::to_string(s.v_heads) +
         " d=" + std::to_string(s.d) + " dv=" + std::to_string(s.dv);
}
Array output(const Problem& p) { return make({1, p.shape.tokens, p.shape.heads, p.shape.dv}, p.kind); }

const std::map<std::string, std::vector<std::pair<std::string, bool>>> moments = {  // name, square
    {"linear.masked", {{"S", false}}},
    {"retention.masked", {{"S", false}}},
    {"mamba2.masked", {{"S", false}}},
    {"delta.masked", {{"S", false}}},
    {"gated_delta.masked", {{"S", false}}},
    {"ahla.masked", {{"P", false}, {"E", false}}},
    {"hla2.masked", {{"S", true}, {"C", false}, {"G", false}}},
    {"hla2.unmasked", {{"S", true}, {"C", false}}},
    {"hla2.printed", {{"S", true}, {"C", false}, {"G", false}}},
    {"hla3.masked", {{"SK", true}, {"P", false}, {"F", false}}},
    {"hla3.unmasked", {{"SK", true}, {"SQ", true}, {"P", false}}},
    {"log_linear.masked", {{"S", false}}},
    {"log_linear_mamba2.masked", {{"S", false}}},
    {"log_linear_gated_delta.masked", {{"S", false}}}};
// What goes with a moment of values in a normalised call.
std::string companion(const std::string& op, const std::string& moment) {
  static const std::map<std::string, std::string> names = {
      {"C", "m"}, {"P", "m"}, {"E", "n"}, {"G", "h"}, {"F", "eta"}};
  return moment == "S" && op != "hla2" ? "z" : names.count(moment) ? names.at(moment) : "";
}
Fields states(const Problem& p, const std::string& prefix, int64_t sequences, int levels) {
  Fields f;
  for (auto& [name, square] : moments.at(p.op + "." + p.variant)) {
    std::vector<int64_t> shape = {sequences, p.shape.heads};
    if (p.levels()) shape.push_back(levels);
    shape.push_back(p.shape.d), shape.push_back(square ? p.shape.d : p.shape.dv);
    f[prefix + name] = make(shape, f32);
    if (!p.normalize || companion(p.op, name).empty()) continue;
    shape.pop_back();
    f[prefix + companion(p.op, name)] = make(shape, f32);
  }
  if (p.levels()) f[prefix + "position"] = make({sequences}, i64);
  return f;
}
Fields tokens_of(const Problem& p, int64_t first, int64_t last) {
  Fields f;
  for (auto& [name, a] : p.fields) f[name] = rows_of(a, first, last);
  return f;
}

// Packed, positions restarting: every sequence against its own definition.
void check_packed_levels(const Problem& p, const attest_kernel& k) {
  const int64_t n = p.shape.tokens;
  const std::vector<int64_t> bounds = {0, 2, 2, 2 + n / 3, n};
  Array cu = make({int64_t(bounds.size())}, i64), packed = output(p);
  CUDA(cudaMemcpy(cu.data, bounds.data(), bounds.size() * 8, cudaMemcpyHostToDevice));
  Fields in = p.fields, out = states(p, "final_state.", int64_t(bounds.size()) - 1, bits(n) + 1);
  in["cu_seqlens"] = cu, out["o"] = packed;
  Prepared all(in, out, p.options);
  if (!run(k, all)) return verdict(false, text(p) + " packed");
  for (size_t i = 0; i + 1 < bounds.size(); ++i) {
    Problem one = p;
    one.fields = tokens_of(p, bounds[i], bounds[i + 1]), one.shape.tokens = bounds[i + 1] - bounds[i];
    const Error e = error_of(one, reference(one), rows_of(packed, bounds[i], bounds[i + 1]));
    verdict(e.bad == 0 && e.rms < gate(p.kind), text(p) + " packed, sequence " + std::to_string(i), &e);
  }
}

// Value; the whole against its parts with the state carried; reruns; packed against separate.
void check_case(const Problem& p, bool features) {
  const attest_kernel* k = kernel(name_of(p));
  if (!k) return verdict(false, name_of(p) + " is not there");
  const Reference r = reference(p);
  Array o = output(p);
  Prepared whole(p.fields, {{"o", o}}, p.options);
  if (!run(*k, whole)) return verdict(false, text(p));
  Error e = error_of(p, r, o);
  verdict(e.bad == 0 && e.rms < gate(p.kind), text(p), &e);
  if (!features || p.shape.tokens < 8) return;
  const std::vector<char> first = bytes_of(o);
  {
    Prepared again(p.fields, {{"o", o}}, p.options);
    CUDA(cudaMemset(o.data, 0xff, first.size()));
    run(*k, again);
    verdict(bytes_of(o) == first, text(p) + " rerun bitwise");
  }
  const int64_t n = p.shape.tokens;
  for (const int64_t cut : {int64_t{1}, n / 2, n - 1}) {
    Array parts = output(p);
    Fields a = tokens_of(p, 0, cut), b = tokens_of(p, cut, n),
           out_a = states(p, "final_state.", 1, bits(cut) + 1);
    for (auto& [name, s] : out_a) b["initial_state." + name.substr(12)] = s;
    out_a["o"] = rows_of(parts, 0, cut);
    Fields out_b = states(p, "final_state.", 1, bits(n) + 1);
    out_b["o"] = rows_of(parts, cut, n);
    Prepared pa(a, out_a, p.options), pb(b, out_b, p.options);
    if (!run(*k, pa) || !run(*k, pb)) {
      verdict(false, text(p) + " split");
      continue;
    }
    e = error_of(p, r, parts);
    verdict(e.bad == 0 && e.rms < gate(p.kind), text(p) + " split at " + std::to_string(cut), &e);
  }
  if (p.levels()) return check_packed_levels(p, *k);
  // Packed: lengths 2, 0, n/3, the rest (a single token alone would be a decode step); against separate calls with the same segments.
  Options same = p.options;
  same["segment"] = {"128", 128};
  const std::vector<int64_t> bounds = {0, 2, 2, 2 + n / 3, n};
  Array cu = make({int64_t(bounds.size())}, i64), packed = output(p), separate = output(p);
  CUDA(cudaMemcpy(cu.data, bounds.data(), bounds.size() * 8, cudaMemcpyHostToDevice));
  Fields in = p.fields;
  in["cu_seqlens"] = cu;
  Fields out = states(p, "final_state.", 4, 1);
  out["o"] = packed;
  Prepared all(in, out, same);
  bool good = run(*k, all);
  for (size_t i = 0; good && i + 1 < bounds.size(); ++i) {
    Prepared one(tokens_of(p, bounds[i], bounds[i + 1]), {{"o", rows_of(separate, bounds[i], bounds[i + 1])}},
                 same);
    good = run(*k, one);
  }
  verdict(good && bytes_of(packed) == bytes_of(separate), text(p) + " packed = separate bitwise");
}

void check_misuse() {
  Problem p = draw_problem("hla2", "masked", bf16, {100, 2, 2, 2, 2, 64, 64}, 1, 1, false);
  const attest_kernel& k = *kernel("cuda.hla2.masked.bf16");
  Array o = output(p);
  CUDA(cudaMemset(o.data, 0x3f, o.count() * 2));
  const std::vector<char> before = bytes_of(o);
  size_t bytes = 0;
  auto expect = [&](const char* what, Prepared& call, bool refuse, size_t workspace_bytes, char* workspace) {
    call.call.workspace = workspace, call.call.workspace_bytes = workspace_bytes;
    const attest_status status = k.run(&call.call);
    CUDA(cudaDeviceSynchronize());
    const bool untouched = bytes_of(o) == before;
    verdict((status != ATTEST_OK) == refuse && untouched == refuse && (!refuse || call.message[0]),
            std::string("misuse: ") + what + ": " + call.message);
    CUDA(cudaMemcpy(o.data, before.data(), before.size(), cudaMemcpyHostToDevice));
  };
  Prepared fine(p.fields, {{"o", o}}, p.options);
  k.workspace(&fine.call, &bytes);
  char* space = static_cast<char*>(make({int64_t(bytes) + 256}, bf16).data);
  expect("none (control)", fine, false, bytes, space);
  expect("workspace one byte short", fine, true, bytes - 1, space);
  expect("workspace null", fine, true, bytes, nullptr);
  expect("workspace misaligned", fine, true, bytes, space + 8);
  auto broken = [&](const char* what, auto change) {
    Prepared call(p.fields, {{"o", o}}, p.options);
    change(call);
    expect(what, call, true, bytes, space);
  };
  broken("q null", [](Prepared& c) { c.tensor("q").data = nullptr; });
  broken("k misaligned",
         [](Prepared& c) { c.tensor("k").data = static_cast<char*>(c.tensor("k").data) + 1; });
  broken("v of type fp16", [](Prepared& c) { c.tensor("v").dtype.code = 2; });
  broken("k on the host", [](Prepared& c) { c.tensor("k").device.device_type = 1; });
  std::vector<char> host(64 * 1024);
  broken("q a host pointer", [&](Prepared& c) { c.tensor("q").data = host.data(); });
  broken("k of another length", [](Prepared& c) { c.tensor("k").shape[1] = 99; });
  broken("unknown option", [](Prepared& c) {
    c.options.push_back({"nonsense", "1", 1});
    c.call.options = c.options.data(), c.call.n_options = int(c.options.size());
  });
  broken("no outputs", [](Prepared& c) { c.call.n_outputs = 0; });
}

// q, k, v, o transposed to [B, H, T, D] in memory, and k expanded over heads by stride 0.
__global__ void swap_heads(const uint16_t* from, uint16_t* to, int64_t tokens, int heads, int columns) {
  for (int64_t i = blockIdx.x * 256ll + threadIdx.x; i < tokens * heads * columns; i += gridDim.x * 256ll) {
    const int64_t t = i / columns / heads, h = i / columns % heads, c = i % columns;
    to[(h * tokens + t) * columns + c] = from[i];
  }
}
void check_strides() {
  Problem p = draw_problem("ahla", "masked", bf16, {300, 4, 4, 4, 4, 128, 128}, 1, 0.98, false);
  const attest_kernel& k = *kernel("cuda.ahla.masked.bf16");
  Array o = output(p), moved = output(p);
  Prepared plain(p.fields, {{"o", o}}, p.options);
  bool good = run(k, plain);
  Fields f = p.fields;
  for (const char* name : {"q", "k", "v"}) {
    Array& a = f[name];
    Array b = make(a.shape, a.kind);
    swap_heads<<<64, 256>>>(static_cast<uint16_t*>(a.data), static_cast<uint16_t*>(b.data), 300, 4, 128);
    a = b;
  }
  Prepared strided(f, {{"o", moved}}, p.options);
  for (const char* name : {"q", "k", "v", "o"}) {
    int64_t* s = strided.tensor(name).strides;
    s[1] = 128, s[2] = 300 * 128;
  }
  good = run(k, strided) && good;
  Array back = make(o.shape, bf16);
  swap_heads<<<64, 256>>>(static_cast<uint16_t*>(o.data), static_cast<uint16_t*>(back.data), 300, 4, 128);
  verdict(good && bytes_of(back) == bytes_of(moved), "strides: heads before tokens, bitwise the same");
}

// Scores of one chunk that all but cancel between the halves of the keys: q again in the second half, k there -(1 - x / 64) of
// itself, x about normal. Where each half is rounded by itself the error is some 60 times that of rounding their sum;
// in fp32 nothing is rounded there.
__global__ void mirror(void* p, int kind, int64_t rows, int columns, const void* x) {
  const int half = columns / 2;
  for (int64_t i = blockIdx.x * int64_t{256} + threadIdx.x; i < rows * half; i += gridDim.x * int64_t{256}) {
    const int64_t at = i / half * columns + i % half;
    write(p, kind, at + half, read(p, kind, at) * (x ? read(x, f32, i) / 64 - 1 : 1));
  }
}
void check_cancelling(const std::string& op, Kind kind, int d, int dv) {
  const int64_t rows = 60 * 4;
  Problem p = draw_problem(op, "masked", kind, {60, 4, 4, 4, 4, d, dv}, 1, 1, false);
  mirror<<<64, 256>>>(p.fields["q"].data, kind, rows, d, nullptr);
  mirror<<<64, 256>>>(p.fields["k"].data, kind, rows, d, random({rows, d / 2}, f32, 0, 1).data);
  CUDA(cudaGetLastError());
  Array o = output(p);
  Prepared call(p.fields, {{"o", o}}, p.options);
  const bool ran = run(*kernel(name_of(p)), call);
  const Error e = error_of(p, reference(p), o);
  verdict(ran && e.bad == 0 && e.rms < gate(kind), text(p) + " halves of keys that cancel", &e);
  free_all();
}

bool decays(const std::string& op) {
  return op == "retention" || op == "ahla" || op == "hla2" || op == "hla3";
}

// Another variant, or the same normalised, or with ridge.
void check_variant(const Problem& what, double decay, bool normalize, double ridge, bool features = true) {
  Problem p = draw_problem(what.op, what.variant, what.kind, what.shape, 1, decay, normalize);
  if (ridge != 0) p.options["ridge"] = {std::to_string(ridge), double(float(ridge))};
  p.options["scale"] = {"0.3", double(0.3f)};
  check_case(p, features);
  free_all();
}
void check_variants(const std::string& op, Kind kind, double decay) {
  if (op.find("delta") != std::string::npos) return;
  const std::vector<Shape> shapes = {{300, 2, 2, 2, 2, 64, 64},
                                     {300, 2, 1, 2, 1, 128, 128},
                                     {150, 3, 1, 3, 3, 17, 5},
                                     {200, 2, 2, 2, 2, 136, 72},
                                     {130, 2, 2, 2, 2, 256, 256}};
  for (const Shape& shape : shapes) {
    const double decayed = shape.dv == 5 ? 1 : decay;
    check_variant({op, "masked", kind, shape}, decayed, true, 0, op.find("log_linear") != 0);
    if (op == "hla3") check_variant({op, "unmasked", kind, shape}, decayed, shape.d != 64, 0);
    if (op != "hla2") continue;
    check_variant({op, "masked", kind, shape}, decayed, true, 0.5);
    check_variant({op, "masked", kind, shape}, decayed, false, 0.5);
    check_variant({op, "unmasked", kind, shape}, decayed, shape.d != 64, shape.d == 64 ? 0 : 0.5);
    // Decayed, the denominators of `printed` change their sign.
    check_variant({op, "printed", kind, shape}, decayed, false, shape.d == 136 ? 0.5 : 0);
    check_variant({op, "printed", kind, shape}, 1, true, shape.d == 128 ? 0.5 : 0);
  }
}

void check_all(const char* glob, bool small) {
  auto wanted = [&](const std::string& op, Kind kind) {
    return fnmatch(glob, ("cuda." + op + "." + kind_names[kind]).c_str(), 0) == 0;
  };
  const std::vector<std::string> scalar = {"linear", "retention", "mamba2", "ahla", "hla2", "hla3"},
                                 slow = {"delta", "gated_delta", "log_linear", "log_linear_mamba2",
                                         "log_linear_gated_delta"};
  for (const Kind kind : {bf16, f16, f32})
    for (const auto* list : {&scalar, &slow})
      for (const std::string& op : *list) {
        if (!wanted(op, kind)) continue;
        const double decay = decays(op) ? 0.96875 : 1;
        std::vector<Shape> shapes = {{257, 2, 2, 2, 2, 64, 64}};
        if (small) {
          shapes.push_back({1100, 1, 1, 1, 1, 64, 64});   // blocks of eight chunks are joined
          shapes.push_back({130, 2, 1, 1, 2, 136, 136});  // in pieces
          shapes.push_back({200, 1, 1, 1, 1, 128, 128});
        }
        if (!small) {
          shapes.push_back({1000, 4, 2, 1, 4, 128, 128});
          for (const int64_t n : {0, 1, 2, 63, 64, 65, 127, 128}) shapes.push_back({n, 2, 2, 2, 2, 64, 64});
          shapes.push_back({200, 2, 2, 2, 2, 64, 128});
          shapes.push_back({200, 2, 2, 2, 2, 128, 64});
          shapes.push_back({200, 2, 2, 2, 2, 104, 120});
          shapes.push_back({90, 3, 1, 3, 3, 17, 5});
          shapes.push_back({70, 2, 2, 2, 2, 1, 1});
          shapes.push_back({90, 2, 2, 2, 2, 130, 70});
          shapes.push_back({300, 2, 1, 2, 2, 40, 24});
          shapes.push_back({300, 2, 1, 2, 1, 256, 256});  // in pieces
          shapes.push_back({200, 2, 2, 2, 2, 136, 200});
          if (op.find("log_linear") == 0) shapes.push_back({3000, 2, 2, 1, 2, 128, 128});
        }
        for (size_t i = 0; i < shapes.size(); ++i) {
          check_case(draw_problem(op, "masked", kind, shapes[i], 1, decay, false),
                     small || i < 2 || shapes[i].d % 64 != 0 || shapes[i].d == 256);
          free_all();
        }
        if (small) {
          if (op.find("hla") != std::string::npos)
            check_variant({op, "masked", kind, {130, 2, 1, 1, 2, 64, 64}}, decay, true, 0);
          if (op == "hla2")
            check_variant({op, "printed", kind, {130, 2, 1, 1, 2, 64, 64}}, decay, false, 0.5);
          continue;
        }
        if (decays(op)) {  // small enough for fp16, whose third-order rows would overflow
          Problem p = draw_problem(op, "masked", kind, {500, 2, 2, 2, 2, 128, 128}, 1, 1, false);
          p.options["scale"] = {"0.25", 0.25};
          check_case(p, true);
        }
        free_all();
        if (kind != f32 && (op == "linear" || op.find("mamba2") != std::string::npos))
          for (const int dv : {256, 64}) check_cancelling(op, kind, 256, dv);
        if (op.find("mamba2") != std::string::npos || op.find("gated") != std::string::npos)
          check_case(draw_problem(op, "masked", kind, {700, 2, 2, 2, 2, 64, 64}, 2, 1, false), true);
        free_all();
        check_variants(op, kind, decay);
      }
  if (std::string(glob) == "*") {
    check_misuse();
    check_strides();
    // Negative control: another decay must not pass.
    Problem p = draw_problem("hla2", "masked", bf16, {257, 2, 2, 2, 2, 64, 64}, 1, 0.96875, false);
    Array o = output(p);
    Prepared call(p.fields, {{"o", o}}, {{"decay", {"0.9921875", 0.9921875}}});
    run(*kernel("cuda.hla2.masked.bf16"), call);
    const Error e = error_of(p, reference(p), o);
    verdict(e.rms > gate(bf16), "control: a wrong decay is seen", &e);
    free_all();
  }
}

// Milliseconds of a call, every launch of it included, sorted: 15 after two to warm up, fewer where one takes half a second.
std::vector<float> times_of(const attest_kernel& k, Prepared& call) {
  std::vector<float> times;
  cudaEvent_t a, b;
  CUDA(cudaEventCreate(&a));
  CUDA(cudaEventCreate(&b));
  for (int i = 0; i < 17; ++i) {
    CUDA(cudaEventRecord(a));
    k.run(&call.call);
    CUDA(cudaEventRecord(b));
    CUDA(cudaEventSynchronize(b));
    float ms = 0;
    CUDA(cudaEventElapsedTime(&ms, a, b));
    if (i >= 2 || ms > 500) times.push_back(ms);
    if (ms > 500) break;
  }
  CUDA(cudaEventDestroy(a));
  CUDA(cudaEventDestroy(b));
  std::sort(times.begin(), times.end());
  return times;
}

// Of several processes, one on each GPU, this one's share of the timings: "2/4".
int part = 1, parts = 1, timings = 0;
bool is_mine() { return timings++ % parts == part - 1; }

void time_one(const char* op, double decay, Kind kind, int64_t n, int d, const char* variant = "masked",
              bool normalize = false, double ridge = 0) {
  if (!is_mine()) return;
  Problem p = draw_problem(op, variant, kind, {n, 16, 16, 16, 16, d, d}, 1, decay, normalize);
  if (ridge != 0) p.options["ridge"] = {"0.5", ridge};
  const attest_kernel& k = *kernel(name_of(p));
  Array o = output(p);
  Prepared call(p.fields, {{"o", o}}, p.options);
  if (run(k, call)) {
    const std::vector<float> times = times_of(k, call);
    const double ms = times[times.size() / 2];
    const std::string name = std::string(op) +
                             (variant == std::string("masked") ? "" : std::string(" ") + variant) +
                             (decays(op) ? (decay == 1 ? " (no decay)" : " (decay)") : "") +
                             (normalize ? ", normalised" : "") + (ridge != 0 ? ", ridge" : "");
    std::printf("| %s | %s | %d | %lld | %.4f | %.4f..%.4f | %.0f |\n", name.c_str(), kind_names[kind], d,
                (long long)n, ms, times.front(), times.back(), 4.0 * n * 16 * d * width[kind] / ms / 1e6);
    std::fflush(stdout);
  }
  free_all();
}
void time_all(const char* glob) {
  std::printf(
      "| kernel | type | d = dv | T | ms (median of 15) | spread | GB/s of q k v o |\n"
      "| --- | --- | ---: | ---: | ---: | ---: | ---: |\n");
  const auto each = [&](Kind kind, auto action) {
    for (const char* op : {"linear", "mamba2", "ahla", "hla2", "hla3", "gated_delta", "log_linear_mamba2",
                           "log_linear_gated_delta"})
      if (fnmatch(glob, ("cuda." + std::string(op) + "." + kind_names[kind]).c_str(), 0) == 0) action(op);
  };
  for (const int64_t n : {4096, 16384, 131072})
    each(bf16, [&](const char* op) {
      for (const double decay : {1.0, 0.999})
        if (decay == 1 || decays(op)) time_one(op, decay, bf16, n, 128);
    });
  each(f16, [&](const char* op) { time_one(op, decays(op) ? 0.999 : 1, f16, 131072, 128); });
  for (const int d : {32, 64, 256})
    each(bf16, [&](const char* op) { time_one(op, decays(op) ? 0.999 : 1, bf16, 16384, d); });
  each(bf16, [&](const char* op) { time_one(op, decays(op) ? 0.999 : 1, bf16, 131072, 256); });
}

void time_variants(const char* glob) {
  std::printf(
      "| kernel | type | d = dv | T | ms (median of 15) | spread | GB/s of q k v o |\n"
      "| --- | --- | ---: | ---: | ---: | ---: | ---: |\n");
  for (const int64_t n : {4096, 131072}) {
    const auto time = [&](const char* op, const char* variant, bool normalize, double ridge) {
      if (fnmatch(glob, ("cuda." + std::string(op) + ".bf16").c_str(), 0) == 0)
        time_one(op, decays(op) ? 0.999 : 1, bf16, n, 128, variant, normalize, ridge);
    };
    for (const char* op : {"linear", "mamba2", "ahla", "hla2", "hla3"}) time(op, "masked", true, 0);
    time("hla2", "masked", true, 0.5);
    time("hla2", "masked", false, 0.5);
    time("hla2", "printed", false, 0);
    time("hla2", "printed", true, 0.5);
    time("hla2", "unmasked", false, 0);
    time("hla3", "unmasked", false, 0);
  }
}

__global__ void count_differences(const uint32_t* a, const uint32_t* b, int64_t words,
                                  unsigned long long* count) {
  unsigned long long own = 0;
  for (int64_t i = blockIdx.x * int64_t{256} + threadIdx.x; i < words; i += gridDim.x * int64_t{256})
    own += a[i] != b[i];
  if (own) atomicAdd(count, own);
}
int64_t differences(const Array& a, const Array& b) {  // 32-bit words of the outputs that differ
  unsigned long long *count, host = 0;
  CUDA(cudaMalloc(&count, 8));
  CUDA(cudaMemset(count, 0, 8));
  count_differences<<<1024, 256>>>(static_cast<uint32_t*>(a.data), static_cast<uint32_t*>(b.data),
                                   a.count() * width[a.kind] / 4, count);
  CUDA(cudaMemcpy(&host, count, 8, cudaMemcpyDeviceToHost));
  cudaFree(count);
  return int64_t(host);
}
const char* const all_ops[] = {"linear",
                               "retention",
                               "mamba2",
                               "ahla",
                               "hla2",
                               "hla3",
                               "delta",
                               "gated_delta",
                               "log_linear",
                               "log_linear_mamba2",
                               "log_linear_gated_delta"};

// A thousand calls give the same bits; a call with another input does not (the control).
void check_reruns(const char* glob) {
  for (const Kind kind : {bf16, f16, f32})
    for (const std::string op : all_ops) {
      if (fnmatch(glob, ("cuda." + op + "." + kind_names[kind]).c_str(), 0) != 0) continue;
      const Shape shape = kind == f32 ? Shape{200, 2, 2, 2, 2, 64, 64} : Shape{1000, 4, 2, 1, 4, 128, 128};
      Problem p = draw_problem(op, "masked", kind, shape, 1, decays(op) ? 0.96875 : 1, false);
      const attest_kernel& k = *kernel(name_of(p));
      Array first = output(p), again = output(p);
      Prepared call(p.fields, {{"o", first}}, p.options), rerun(p.fields, {{"o", again}}, p.options);
      bool good = run(k, call) && run(k, rerun);
      int64_t words = good ? differences(first, again) : 1;
      for (int i = 2; good && i < 1000; ++i) {
        CUDA(cudaMemsetAsync(again.data, i, again.count() * width[kind]));
        k.run(&rerun.call);
        if (i % 10 == 0 || i == 999) words += differences(first, again);
      }
      Array other = random(p.fields["v"].shape, kind, 0, 1);
      Fields changed = p.fields;
      changed["v"] = other;
      Prepared control(changed, {{"o", again}}, p.options);
      good = good && run(k, control);
      verdict(good && words == 0 && differences(first, again) > 0,
              text(p) + " 1000 calls, bits compared after every tenth");
      free_all();
    }
}

// More than 2^31 elements in a tensor: nine batch entries against the first and the last alone, bitwise; one sequence
// against its last 4096 tokens, which its gates have made independent of the rest.
void check_wide(const char* glob) {
  const int64_t batch = 9, tokens = 131072;
  for (const std::string op : all_ops) {
    if (fnmatch(glob, ("cuda." + op + ".bf16").c_str(), 0) != 0) continue;
    Problem p = draw_problem(op, "masked", bf16, {batch * tokens, 16, 16, 16, 16, 128, 128}, 1,
                             decays(op) ? 0.96875 : 1, false);
    p.options["segment"] = {"8192", 8192};
    const auto entries = [&](Array a, int64_t first, int64_t count) {
      const int64_t row = a.count() / (batch * tokens);
      a.data = static_cast<char*>(a.data) + first * tokens * row * width[a.kind];
      a.shape[0] = count, a.shape[1] = tokens;
      return a;
    };
    Array whole = output(p), alone = make({1, tokens, 16, 128}, bf16);
    Fields fields;
    for (auto& [name, a] : p.fields) fields[name] = entries(a, 0, batch);
    Prepared call(fields, {{"o", entries(whole, 0, batch)}}, p.options);
    const attest_kernel& k = *kernel(name_of(p));
    bool good = run(k, call, true);
    for (const int64_t b : {int64_t{0}, batch - 1}) {
      for (auto& [name, a] : p.fields) fields[name] = entries(a, b, 1);
      Prepared one(fields, {{"o", alone}}, p.options);
      const bool done = good && run(k, one, true);
      const int64_t words = done ? differences(entries(whole, b, 1), alone) : -1;
      verdict(words == 0, name_of(p) + " B=9 T=131072 H=16 d=dv=128 (2.4e9 elements): entry " +
                              std::to_string(b) +
                              " against itself alone, words that differ: " + std::to_string(words));
    }
    const int64_t words = good ? differences(entries(whole, 0, 1), alone) : 0;
    verdict(words > 0, name_of(p) + " control: the first entry is not the last");
    free_all();
  }
  if (fnmatch(glob, "cuda.mamba2.bf16", 0) != 0) return;
  const int64_t n = 1048640, tail = 4096;
  Problem p = draw_problem("mamba2", "masked", bf16, {n, 16, 16, 16, 16, 128, 128}, 1, 1, false);
  Array o = output(p), last = make({1, tail, 16, 128}, bf16);
  Prepared whole(p.fields, {{"o", o}}, {}), part(tokens_of(p, n - tail, n), {{"o", last}}, {});
  const attest_kernel& k = *kernel(name_of(p));
  const bool good = run(k, whole, true) && run(k, part, true);
  const std::vector<char> a = bytes_of(rows_of(o, n - tail / 2, n)),
                          b = bytes_of(rows_of(last, tail / 2, tail));
  verdict(good && a == b, text(p) + " (2.15e9 elements): its last 2048 rows, bitwise");
  free_all();
}

// One token of 256 sequences, 16 heads: each state is read and written once.
void time_steps(const char* glob) {
  std::printf(
      "| decode step, B=256 H=16 d=dv=128 bf16 | ms (median of 15) | GB of states | TB/s |\n| --- | ---: | "
      "---: | ---: |\n");
  for (const char* op : {"mamba2", "gated_delta", "ahla", "hla2", "hla3"}) {
    if (fnmatch(glob, ("cuda." + std::string(op) + ".bf16").c_str(), 0) != 0 || !is_mine()) continue;
    Problem p{op, "masked", bf16, {1, 16, 16, 16, 16, 128, 128}, {}, {}, false};
    const int64_t n = 256;
    for (const char* name : {"q", "k", "v"}) p.fields[name] = random({n, 1, 16, 128}, bf16, 0, 0.1);
    if (p.gated()) p.fields["g"] = random({n, 1, 16}, f32, 1, -0.2, 0);
    if (p.delta()) p.fields["beta"] = random({n, 1, 16}, f32, 1, 0, 1);
    Fields in = p.fields, out = states(p, "final_state.", n, 1);
    double bytes = 0;
    for (auto& [name, s] : out) {
      in["initial_state." + name.substr(12)] = random(s.shape, f32, 0, 1);
      bytes += 8.0 * s.count();
    }
    out["o"] = make({n, 1, 16, 128}, bf16);
    Prepared call(in, out, {});
    const attest_kernel& k = *kernel(name_of(p));
    if (!run(k, call)) continue;
    const std::vector<float> times = times_of(k, call);
    const double ms = times[times.size() / 2];
    std::printf("| %s step | %.4f | %.2f | %.2f TB/s |\n", op, ms, bytes / 1e9, bytes / ms / 1e9);
    free_all();
  }
}

}  // namespace

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("not run: no GPU\n");
    return std::getenv("ATTEST_REQUIRE_GPU") ? 1 : 77;
  }
  kernels = attest_kernels(ATTEST_ABI, sizeof(attest_kernel), &kernel_count);
  if (!kernels) return std::printf("the library has another interface\n"), 1;
  cudaDeviceProp properties;
  CUDA(cudaGetDeviceProperties(&properties, 0));
  const std::string what = argc > 1 ? argv[1] : "check";
  const char* glob = argc > 2 ? argv[2] : "*";
  if (argc > 3 && (std::sscanf(argv[3], "%d/%d", &part, &parts) != 2 || part < 1 || part > parts)) {
    std::fprintf(stderr, "cuda_device_check: part '%s': expected I/N with 1 <= I <= N\n", argv[3]);
    return 2;
  }
  std::printf("device: %s, %d multiprocessors\n", properties.name, properties.multiProcessorCount);
  if (what == "time") {
    time_all(glob);
    time_steps(glob);
  } else if (what == "variants") {
    time_variants(glob);
  } else if (what == "reruns") {
    check_reruns(glob);
  } else if (what == "wide") {
    check_wide(glob);
  } else {
    check_all(glob, what == "small");
  }
  if (what != "time" && what != "variants")
    std::printf("%s: %d of the checks above failed\n", failures ? "FAIL" : "PASS", failures);
  return failures ? 1 : 0;
}
