// Reads the errors that functions of the host table return.
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "plugin/handles.hpp"
#include "plugin/host_table.hpp"

namespace hami::testing {

// The text of an error, which is freed.
inline std::string text_of_error(hami_error* error) {
  REQUIRE(error);
  const std::string text = error->error.message();
  host_table().error_free(error);
  return text;
}

}  // namespace hami::testing
