// Expands bodies in the content codings gzip and deflate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "body.hpp"
#include "head.hpp"

namespace hami_serve {

// Returns the expanded body, of at most `most` bytes. Null: it is wrong or too large, or `charge` or the machine has no memory for
// it. `charge` gets bytes before they are expanded. It takes long: a byte can become a thousand.
std::shared_ptr<Body> expanded(const Body& body, const Head& head, std::size_t most,
                               const std::function<bool(std::int64_t)>& charge);

}  // namespace hami_serve
