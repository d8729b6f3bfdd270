# The parsers as static libraries llhttp, simdjson, zlib and nghttp2, from hami_SOURCES; `nghttp2` is empty without that one.
# The fuzz targets of the repository include this file too.

# A static library of one of them. Optimised in debug builds too: every byte of every request goes through them.
function(add_parser name include)
  add_library(${name} STATIC ${ARGN})
  target_include_directories(${name} SYSTEM PUBLIC "${include}")
  target_compile_options(${name} PRIVATE -O2 -w)
  set_target_properties(${name} PROPERTIES
    POSITION_INDEPENDENT_CODE ON
    C_VISIBILITY_PRESET hidden
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON
    UNITY_BUILD OFF
  )
endfunction()

file(GLOB llhttp_files "${hami_SOURCES}/llhttp/src/*.c")
add_parser(llhttp "${hami_SOURCES}/llhttp/include" ${llhttp_files})

add_parser(simdjson "${hami_SOURCES}/simdjson" "${hami_SOURCES}/simdjson/simdjson.cpp")
target_compile_features(simdjson PUBLIC cxx_std_17)

file(GLOB zlib_files "${hami_SOURCES}/zlib/*.c")
add_parser(zlib "${hami_SOURCES}/zlib" ${zlib_files})

# Without nghttp2 there is no target of that name and no HAMI_SERVE_NGHTTP2: gRPC is served by grpcio.
if(IS_DIRECTORY "${hami_SOURCES}/nghttp2")
  file(GLOB nghttp2_files "${hami_SOURCES}/nghttp2/lib/*.c")
  add_parser(nghttp2 "${hami_SOURCES}/nghttp2/lib/includes" ${nghttp2_files})
  file(STRINGS "${hami_SOURCES}/nghttp2/VERSION" PACKAGE_VERSION)
  string(REGEX MATCH "^([0-9]+)\\.([0-9]+)\\.([0-9]+)$" matched "${PACKAGE_VERSION}")
  math(EXPR PACKAGE_VERSION_NUM "(${CMAKE_MATCH_1} << 16) + (${CMAKE_MATCH_2} << 8) + ${CMAKE_MATCH_3}"
    OUTPUT_FORMAT HEXADECIMAL)
  configure_file("${hami_SOURCES}/nghttp2/lib/includes/nghttp2/nghttp2ver.h.in"
    "${CMAKE_CURRENT_BINARY_DIR}/nghttp2/nghttp2ver.h" @ONLY)
  target_include_directories(nghttp2 SYSTEM PUBLIC "${CMAKE_CURRENT_BINARY_DIR}")
  # What its own configuration finds on Linux.
  target_compile_definitions(nghttp2
    PUBLIC NGHTTP2_STATICLIB
    PRIVATE HAVE_ARPA_INET_H HAVE_NETINET_IN_H HAVE_UNISTD_H HAVE_CLOCK_GETTIME HAVE_DECL_CLOCK_MONOTONIC=1)
  set(nghttp2 nghttp2)
else()
  message(WARNING "${hami_SOURCES} has no nghttp2: gRPC will be served by grpcio")
endif()
