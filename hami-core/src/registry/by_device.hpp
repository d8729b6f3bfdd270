// The choice between a backend and those of its name for devices, by where the `data` of a request lies.
#pragma once

#include "backend/init.hpp"

namespace hami {

// A backend that hands requests whose data is in device memory to the implementation of its name for that device, and all
// others to `host`. An implementation is found and built when the first data on its device arrives: most pipes never see any.
// It gets the parameters of `host`, and `device`, such as "cuda:0". For kNone, the result is `host` itself.
BackendPtr choose_by_device(DeviceChoice choice, BackendPtr host);

// The backend for CPU memory of one that choose_by_device made; any other backend is returned as it is.
BackendPtr for_cpu_memory(BackendPtr backend);

}  // namespace hami
