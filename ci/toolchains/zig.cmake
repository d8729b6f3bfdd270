# clang from the ziglang wheel, for one glibc: -DCMAKE_TOOLCHAIN_FILE=…/zig.cmake [-DHAMI_ZIG_TARGET=x86_64-linux-gnu.2.17]
# The zig program is $HAMI_ZIG, else that of the ziglang package of python3.
set(HAMI_ZIG_TARGET "x86_64-linux-gnu.2.17" CACHE STRING "Architecture and oldest glibc that the result runs on")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES HAMI_ZIG_TARGET)

# On the host's own architecture this is no cross build to CMake: since 4.1 (CMP0190) a cross build may not look for the
# Python interpreter.
string(REGEX MATCH "^[^-]+" zig_architecture "${HAMI_ZIG_TARGET}")
if(NOT zig_architecture STREQUAL CMAKE_HOST_SYSTEM_PROCESSOR)
  set(CMAKE_SYSTEM_NAME Linux)
  set(CMAKE_SYSTEM_PROCESSOR "${zig_architecture}")
endif()

set(zig_program "$ENV{HAMI_ZIG}")
if(NOT zig_program)
  execute_process(
    COMMAND python3 -c "import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).with_name('zig'))"
    OUTPUT_VARIABLE zig_program OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
endif()

# CMake wants one program per tool, zig is one program for all. The compilers always strip: what is built here is for
# release, and zig would otherwise build its C++ library twice, a minute each, with debug information for CMake's probes.
set(zig_tools "${CMAKE_BINARY_DIR}/zig-tools")
foreach(tool cc c++ ar ranlib)
  set(arguments ${tool})
  if(tool MATCHES "^c")
    string(APPEND arguments " -target ${HAMI_ZIG_TARGET} -s")
  endif()
  file(WRITE "${zig_tools}/${tool}" "#!/bin/sh\nexec \"${zig_program}\" ${arguments} \"$@\"\n")
  file(CHMOD "${zig_tools}/${tool}" FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
endforeach()

set(CMAKE_C_COMPILER "${zig_tools}/cc")
set(CMAKE_CXX_COMPILER "${zig_tools}/c++")
set(CMAKE_AR "${zig_tools}/ar")
set(CMAKE_RANLIB "${zig_tools}/ranlib")
