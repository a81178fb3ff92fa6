// attest._attest: attest/attest.hpp for Python. A kernel is a function (inputs, options, wanted) -> (status, outputs); its
// arrays are views of the memory of the call, which they keep alive. Everything else is said in attest/__init__.py.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <attest/attest.hpp>
#include <cstring>
#include <exception>
#include <iterator>
#include <memory>
#include <utility>

namespace nb = nanobind;

namespace {

using Array = nb::ndarray<nb::ro, nb::device::cpu>;

template <class Owned>
nb::capsule owner_of(Owned owned) {
  return nb::capsule(new Owned(std::move(owned)), [](void* p) noexcept { delete static_cast<Owned*>(p); });
}

nb::dlpack::dtype dtype_of(attest::Element element, bool torch) {
  switch (element) {
    case attest::Element::float64:
      return nb::dtype<double>();
    case attest::Element::float32:
      return nb::dtype<float>();
    case attest::Element::int64:
      return nb::dtype<std::int64_t>();
    case attest::Element::float16:
      return {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};
    case attest::Element::bfloat16:
      break;
  }
  // NumPy has no bfloat16: its bits.
  if (!torch) return nb::dtype<std::uint16_t>();
  return {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Bfloat), 16, 1};
}

template <class Framework, class... Access>
nb::object view(const attest::CallTensor& tensor, const std::shared_ptr<const void>& memory) {
  const std::vector<std::size_t> shape(tensor.shape.begin(), tensor.shape.end());
  const nb::ndarray<Framework, Access...> array(
      tensor.data, shape.size(), shape.data(), owner_of(memory), nullptr,
      dtype_of(tensor.element, std::is_same_v<Framework, nb::pytorch>), nb::device::cpu::value);
  return nb::cast(array);
}

nb::dict inputs_of(const attest::Call& call, bool torch) {
  nb::dict inputs;
  for (const attest::CallTensor& tensor : call.inputs)
    inputs[tensor.name.c_str()] =
        torch ? view<nb::pytorch>(tensor, call.memory) : view<nb::numpy, nb::ro>(tensor, call.memory);
  return inputs;
}

const char* name_of(attest::Element element) {
  constexpr const char* names[] = {"float64", "float32", "float16", "bfloat16", "int64"};
  return names[static_cast<std::size_t>(element)];
}

std::string name_of(const nb::dlpack::dtype& type) {
  constexpr const char* codes[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
  return (type.code < std::size(codes) ? codes[type.code] : "unknown") + std::to_string(type.bits);
}

// The outputs that are wanted, and their types.
nb::dict wanted_of(const attest::Call& call) {
  nb::dict wanted;
  for (const attest::CallTensor& output : call.outputs) wanted[output.name.c_str()] = name_of(output.element);
  return wanted;
}

std::string shape_text(const std::int64_t* shape, std::size_t rank) {
  std::string text = "[";
  for (std::size_t i = 0; i < rank; ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

bool fits(const nb::dlpack::dtype& given, attest::Element element) {
  return given == dtype_of(element, true) || given == dtype_of(element, false);
}

void copy_elements(const Array& from, const attest::CallTensor& to) {
  const std::size_t bytes = from.itemsize(), rank = from.ndim();
  std::vector<std::int64_t> index(rank, 0);
  std::int64_t at = 0;
  auto* out = static_cast<std::byte*>(to.data);
  const auto* in = static_cast<const std::byte*>(from.data());
  for (std::int64_t flat = 0; flat < to.size(); ++flat, out += bytes) {
    std::memcpy(out, in + at * static_cast<std::int64_t>(bytes), bytes);
    for (std::size_t d = rank; d-- > 0;) {
      at += from.stride(d);
      if (++index[d] < to.shape[d]) break;
      at -= from.stride(d) * to.shape[d];
      index[d] = 0;
    }
  }
}

void take_output(nb::handle given, const attest::CallTensor& output) {
  Array array;
  if (!nb::try_cast(given, array, false))
    throw attest::WrongOutput("the output " + output.name + " is no array in the memory of the host (" +
                              nb::cast<std::string>(nb::str(given.type())) + ")");
  const std::vector<std::int64_t> shape(array.shape_ptr(), array.shape_ptr() + array.ndim());
  if (shape != output.shape)
    throw attest::WrongOutput("the output " + output.name + " has the shape " +
                              shape_text(shape.data(), shape.size()) + ", expected " +
                              shape_text(output.shape.data(), output.shape.size()));
  if (!fits(array.dtype(), output.element))
    throw attest::WrongOutput(output.name + " has dtype " + name_of(array.dtype()) + ", expected " +
                              name_of(output.element));
  copy_elements(array, output);
}

void run(const nb::callable& function, bool torch, const attest::Call& call) {
  nb::dict options;
  for (const auto& [key, value] : call.options) options[key.c_str()] = value;
  nb::tuple answer;
  try {
    answer = nb::cast<nb::tuple>(function(inputs_of(call, torch), options, wanted_of(call)));
  } catch (nb::python_error&) {
    throw attest::Interruption{std::current_exception()};  // KeyboardInterrupt, SystemExit
  }
  const auto status = nb::cast<std::string>(answer[0]);
  if (status == "unsupported") throw attest::Unsupported(nb::cast<std::string>(answer[1]));
  if (status == "wrong output") throw attest::WrongOutput(nb::cast<std::string>(answer[1]));
  if (status == "failed") throw std::runtime_error(nb::cast<std::string>(answer[1]));
  const auto outputs = nb::cast<nb::dict>(answer[1]);
  for (const attest::CallTensor& output : call.outputs) {
    if (!outputs.contains(output.name.c_str()))
      throw attest::WrongOutput("the output " + output.name + " is missing");
    take_output(outputs[output.name.c_str()], output);
  }
}

attest::Result check(nb::callable function, const std::map<std::string, std::string>& about, bool torch,
                     std::optional<std::uint64_t> seed, bool full, const std::string& only) {
  attest::KernelUnderTest kernel;
  kernel.name = about.at("name"), kernel.op = about.at("op"), kernel.variant = about.at("variant");
  kernel.form = about.at("form"), kernel.contract = about.at("contract");
  kernel.features = about.at("features"), kernel.limits = about.at("limits"),
  kernel.takes = about.at("takes");
  kernel.run = [&](const attest::Call& call) { run(function, torch, call); };
  try {
    return attest::check(kernel, {.seed = seed, .full = full, .only = only});
  } catch (const attest::Interruption& interruption) {
    std::rethrow_exception(interruption.reason);
  }
}

nb::object as_array(std::vector<double> values, const std::vector<std::size_t>& shape) {
  auto owned = std::make_unique<std::vector<double>>(std::move(values));
  double* data = owned->data();
  static double nothing = 0;
  const nb::ndarray<nb::numpy, double> array(data ? data : &nothing, shape.size(), shape.data(),
                                             owner_of(std::move(owned)));
  return nb::cast(array);
}

nb::dict oracle(const std::string& op,
                const std::map<std::string, nb::ndarray<nb::ro, double, nb::c_contig>>& fields,
                const std::vector<std::string>& options, const std::string& variant,
                const std::string& precision, bool gradient) {
  attest::TestInput input;
  for (const auto& [name, array] : fields)
    input.fields[name] = {{array.shape_ptr(), array.shape_ptr() + array.ndim()},
                          {array.data(), array.data() + array.size()}};
  input.options = options;
  std::map<std::string, attest::CertifiedValues> values;
  {
    const nb::gil_scoped_release others_may_run;
    values = attest::oracle(op, input, {.variant = variant, .precision = precision, .gradient = gradient});
  }
  nb::dict result;
  for (auto& [name, tensor] : values) {
    const std::vector<std::size_t> shape(tensor.shape.begin(), tensor.shape.end());
    const bool has_magnitude = tensor.magnitude.size() == tensor.value.size();
    result[name.c_str()] = as_array(std::move(tensor.value), shape);
    result[(name + "_low").c_str()] = as_array(std::move(tensor.low), shape);
    result[(name + "_radius").c_str()] = as_array(std::move(tensor.radius), shape);
    if (has_magnitude) result[(name + "_magnitude").c_str()] = as_array(std::move(tensor.magnitude), shape);
  }
  return result;
}

}  // namespace

NB_MODULE(_attest, module) {
  nb::class_<attest::CheckVerdict>(module, "CheckVerdict")
      .def_ro("check", &attest::CheckVerdict::check)
      .def_ro("verdict", &attest::CheckVerdict::verdict)
      .def_ro("reason", &attest::CheckVerdict::reason);
  nb::class_<attest::Result>(module, "Result")
      .def_ro("verdict", &attest::Result::verdict)
      .def_ro("checks", &attest::Result::checks)
      .def_ro("seed", &attest::Result::seed)
      .def_ro("full", &attest::Result::full)
      .def_ro("first_bad", &attest::Result::first_bad)
      .def("summary", &attest::Result::summary, nb::arg("replay"));
  module.def("check", &check, nb::arg("function"), nb::arg("about"), nb::arg("torch"), nb::arg("seed").none(),
             nb::arg("full"), nb::arg("only"));
  module.def("oracle", &oracle, nb::arg("op"), nb::arg("fields"), nb::arg("options"), nb::arg("variant"),
             nb::arg("precision"), nb::arg("gradient"));
}
