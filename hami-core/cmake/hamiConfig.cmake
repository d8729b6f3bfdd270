# find_package(hami CONFIG REQUIRED), with hami_DIR from `python -m hami --cmake-dir`:
#
#   hami_add_plugin(acme acme.cpp)     # a shared library acme.so that exports hami_plugin_v1 alone
#
# hami::plugin has the headers and nothing to link.
if(NOT TARGET hami::plugin)
  get_filename_component(hami_INCLUDE_DIR "${CMAKE_CURRENT_LIST_DIR}/../include" ABSOLUTE)
  add_library(hami::plugin INTERFACE IMPORTED)
  set_target_properties(hami::plugin PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${hami_INCLUDE_DIR}")
  set_property(TARGET hami::plugin PROPERTY INTERFACE_COMPILE_FEATURES cxx_std_17)
endif()

set(hami_PLUGIN_EXPORTS "${CMAKE_CURRENT_LIST_DIR}/plugin-exports.map")

function(hami_add_plugin name)
  add_library(${name} MODULE ${ARGN})
  target_link_libraries(${name} PRIVATE hami::plugin)
  target_link_options(${name} PRIVATE "-Wl,--version-script=${hami_PLUGIN_EXPORTS}" -Wl,-z,defs)
  set_target_properties(${name} PROPERTIES
    PREFIX ""
    C_VISIBILITY_PRESET hidden
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON
    LINK_DEPENDS "${hami_PLUGIN_EXPORTS}"
  )
endfunction()
