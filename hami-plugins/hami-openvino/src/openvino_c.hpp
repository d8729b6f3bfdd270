// The part of OpenVINO's C API that the plugin uses: types, and a table of functions that is filled when the library is
// loaded.
//
// It is declared here instead of included from OpenVINO, so that one build runs with every version. Signatures are the
// same in all supported versions; the codes of element types are not (library.hpp). A test compares these declarations
// with the installed headers.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {
struct ov_core_t;
struct ov_model_t;
struct ov_compiled_model_t;
struct ov_infer_request_t;
struct ov_tensor_t;
struct ov_output_const_port_t;

using ov_status_e = int;        // 0 is success
using ov_element_type_e = int;  // the meaning of a code depends on the version

struct ov_version_t {
  const char* buildNumber;
  const char* description;
};
struct ov_available_devices_t {
  char** devices;
  size_t size;
};
struct ov_dimension_t {
  int64_t min;
  int64_t max;
};
struct ov_shape_t {
  int64_t rank;
  int64_t* dims;
};
struct ov_partial_shape_t {
  ov_dimension_t rank;
  ov_dimension_t* dims;
};
}

// F(result type, name, (argument types)) for each function.
#define HAMI_OPENVINO_FUNCTIONS(F)                                                                                    \
  F(const char*, ov_get_last_err_msg, ())                                                                             \
  F(void, ov_free, (const char*))                                                                                     \
  F(ov_status_e, ov_get_openvino_version, (ov_version_t*))                                                            \
  F(void, ov_version_free, (ov_version_t*))                                                                           \
  F(ov_status_e, ov_core_create, (ov_core_t**))                                                                       \
  F(ov_status_e, ov_core_get_available_devices, (const ov_core_t*, ov_available_devices_t*))                          \
  F(void, ov_available_devices_free, (ov_available_devices_t*))                                                       \
  F(ov_status_e, ov_core_read_model, (const ov_core_t*, const char*, const char*, ov_model_t**))                      \
  F(ov_status_e, ov_core_read_model_from_memory_buffer,                                                               \
    (const ov_core_t*, const char*, const size_t, const ov_tensor_t*, ov_model_t**))                                  \
  F(ov_status_e, ov_core_compile_model,                                                                               \
    (const ov_core_t*, const ov_model_t*, const char*, const size_t, ov_compiled_model_t**, ...))                     \
  F(void, ov_model_free, (ov_model_t*))                                                                               \
  F(ov_status_e, ov_model_inputs_size, (const ov_model_t*, size_t*))                                                  \
  F(ov_status_e, ov_model_outputs_size, (const ov_model_t*, size_t*))                                                 \
  F(ov_status_e, ov_model_const_input_by_index, (const ov_model_t*, const size_t, ov_output_const_port_t**))          \
  F(ov_status_e, ov_model_const_output_by_index, (const ov_model_t*, const size_t, ov_output_const_port_t**))         \
  F(ov_status_e, ov_model_const_input_by_name, (const ov_model_t*, const char*, ov_output_const_port_t**))            \
  F(ov_status_e, ov_model_reshape_by_port_indexes,                                                                    \
    (const ov_model_t*, const size_t*, const ov_partial_shape_t*, size_t))                                            \
  F(void, ov_output_const_port_free, (ov_output_const_port_t*))                                                       \
  F(ov_status_e, ov_port_get_any_name, (const ov_output_const_port_t*, char**))                                       \
  F(ov_status_e, ov_port_get_partial_shape, (const ov_output_const_port_t*, ov_partial_shape_t*))                     \
  F(ov_status_e, ov_port_get_element_type, (const ov_output_const_port_t*, ov_element_type_e*))                       \
  F(void, ov_partial_shape_free, (ov_partial_shape_t*))                                                               \
  F(ov_status_e, ov_compiled_model_create_infer_request, (const ov_compiled_model_t*, ov_infer_request_t**))          \
  F(ov_status_e, ov_compiled_model_get_property, (const ov_compiled_model_t*, const char*, char**))                   \
  F(void, ov_compiled_model_free, (ov_compiled_model_t*))                                                             \
  F(ov_status_e, ov_infer_request_set_input_tensor_by_index, (ov_infer_request_t*, const size_t, const ov_tensor_t*)) \
  F(ov_status_e, ov_infer_request_get_output_tensor_by_index,                                                         \
    (const ov_infer_request_t*, const size_t, ov_tensor_t**))                                                         \
  F(ov_status_e, ov_infer_request_start_async, (ov_infer_request_t*))                                                 \
  F(ov_status_e, ov_infer_request_wait, (ov_infer_request_t*))                                                        \
  F(void, ov_infer_request_free, (ov_infer_request_t*))                                                               \
  F(ov_status_e, ov_tensor_create_from_host_ptr, (const ov_element_type_e, const ov_shape_t, void*, ov_tensor_t**))   \
  F(ov_status_e, ov_tensor_get_shape, (const ov_tensor_t*, ov_shape_t*))                                              \
  F(ov_status_e, ov_tensor_data, (const ov_tensor_t*, void**))                                                        \
  F(void, ov_tensor_free, (ov_tensor_t*))                                                                             \
  F(ov_status_e, ov_shape_free, (ov_shape_t*))

namespace hami_openvino {

struct Api {
#define HAMI_OPENVINO_FIELD(result, name, arguments) result(*name) arguments = nullptr;
  HAMI_OPENVINO_FUNCTIONS(HAMI_OPENVINO_FIELD)
#undef HAMI_OPENVINO_FIELD
};

}  // namespace hami_openvino
