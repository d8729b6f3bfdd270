// set_result_to_data: the outcome of backends that do not change a request.
#pragma once

#include "request/request.hpp"

namespace hami {

// `result` = `data`; without `data` the request fails.
inline void set_result_to_data(Request& request) {
  if (const Value* data = request.dict.find(kData))
    request.dict.set(kResult, Value(*data));
  else
    request.fail(Error(ErrorCode::kRequest, "the request has no `data`"));
}

inline void set_result_to_data(Batch batch) {
  for (Request* request : batch) set_result_to_data(*request);
}

}  // namespace hami
