// A forward that is a generator: it delivers the parts of the result of one request.
#pragma once

#include <string>

#include "gil.hpp"
#include "request/api.hpp"

namespace hami::bind {

bool is_generator_function(const py::object& method);

// Runs the generator to its end: each value that it yields is a part. `result` is what it returns, else the list of the parts, or
// None if the caller has taken them. A cancelled request fails, and the generator is closed after its next part. Throws what it raises,
// and Error if the batch has several requests. `label`: of the backend.
void run_generator(const py::object& generator, Batch batch, const std::string& label);

}  // namespace hami::bind
