// Tensors between Python and the core, both ways by DLPack and without a copy; hami.Tensor.
#pragma once

#include "value/tensor.hpp"
#include "gil.hpp"

namespace hami::bind {

// The memory of an object with __dlpack__ as a tensor; None if the object has no such method. Error(kDataType) if it is
// not in CPU memory, or cannot be had without a copy. With the lock held; what it gives may die on any thread.
Value tensor_from(py::handle object);

// What messages call the type of an object: "torch.Tensor", "set".
std::string python_type_name(py::handle object);

void register_tensor(py::module_& module);

}  // namespace hami::bind
