// hami.Tensor, and the exchange of tensors between Python and the core through DLPack, without a copy.
#pragma once

#include <cstdint>
#include <optional>

#include "gil.hpp"
#include "value/api.hpp"

namespace hami::bind {

constexpr std::int64_t kDefaultStream = 1;  // in DLPack, of CUDA and ROCm

// The memory of an object with __dlpack__ as a tensor; None if the object does not have this method. Error(kDataType)
// if the memory cannot be exported without a copy, or is not CPU memory and there is no stream of its device with which it
// is to be ordered. Requires the GIL. The tensor may be destroyed on any thread.
Value tensor_from(py::handle object, std::optional<std::int64_t> stream = std::nullopt);

// Whether an object is an array of NumPy and not of a subclass.
bool is_array(py::handle object) noexcept;

// The same for such an array through its buffer, in a fraction of the time; None for the few dtypes that need more.
Value array_as_tensor(py::handle array);

// Whether the type of an object has DLPack's C functions, by which device_tensor_at_once reads it. Requires the GIL.
bool has_exchange_api(py::handle object) noexcept;

// The memory of such an object on a device as a tensor, in a fraction of the time of tensor_from; None if the object needs that:
// it lies in CPU memory, its package works on another stream on this thread, or it cannot be read. Requires the GIL.
Value device_tensor_at_once(py::handle object, std::int64_t stream);

// Makes the names that the functions here look up. Called once, before them.
void make_import_names();

// Where the memory of an object lies; CPU memory if it does not say so. Takes the GIL.
DLDevice device_of_tensor(py::handle object);

// Checks a capsule that `object` returned from __dlpack__, for a consumer outside of the core. Error(kDataType).
void check_capsule(py::handle object, const py::object& capsule);

// The type of an object as messages show it: "torch.Tensor", "set".
std::string python_type_name(py::handle object);

[[gnu::cold]] void register_tensor(py::module_& module);

}  // namespace hami::bind
