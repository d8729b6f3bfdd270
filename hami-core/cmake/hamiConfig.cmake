# find_package(hami CONFIG REQUIRED), with hami_DIR from `python -m hami --cmake-dir`:
#
#   hami_add_plugin(acme acme.cpp)     # a shared library acme.so that exports hami_plugin_v1 alone
#   hami_sources()                     # sets hami_SOURCES: the folder with the C sources that pyproject.toml names
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

# Set hami_SOURCES to the folder with the sources of others that [tool.hami-build.sources] in pyproject.toml names,
# NAME/FILE each. It is HAMI_SOURCES, or that in a source distribution; in a checkout, hami-build fetches them.
# Their notices become part of the wheel.
function(hami_sources)
  set(folder "${CMAKE_CURRENT_SOURCE_DIR}/sources")
  if(HAMI_SOURCES)
    set(folder "${HAMI_SOURCES}")
  elseif(NOT IS_DIRECTORY "${folder}")
    find_package(Python REQUIRED COMPONENTS Interpreter)
    execute_process(
      COMMAND "${Python_EXECUTABLE}" -m hami_build sources "${CMAKE_CURRENT_SOURCE_DIR}"
      OUTPUT_VARIABLE folder ERROR_VARIABLE reason RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(failed)
      message(FATAL_ERROR
        "hami-build cannot give the sources that ${CMAKE_CURRENT_SOURCE_DIR}/pyproject.toml names; it is one of the build "
        "requirements (pip install hami-build), and hami-build sources fetches them.\n${reason}")
    endif()
  endif()
  if(SKBUILD_METADATA_DIR AND IS_DIRECTORY "${folder}/licenses")
    install(DIRECTORY "${folder}/licenses" DESTINATION "${SKBUILD_METADATA_DIR}")
  endif()
  set(hami_SOURCES "${folder}" PARENT_SCOPE)
endfunction()
