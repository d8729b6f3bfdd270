# clang from the ziglang wheel, for one glibc: -DCMAKE_TOOLCHAIN_FILE=…/zig.cmake [-DHAMI_ZIG_TARGET=x86_64-linux-gnu.2.17]
# The zig program is $HAMI_ZIG, else that of the ziglang package of python3.
set(HAMI_ZIG_TARGET "x86_64-linux-gnu.2.17" CACHE STRING "Architecture and oldest glibc that the result runs on")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES HAMI_ZIG_TARGET)

# For the host's own architecture this is not a cross build: since CMake 4.1 (CMP0190) a cross build must not look for
# the Python interpreter.
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

# CMake needs one program per tool, and zig is one program for all. The compilers always strip: builds are for release,
# and without it zig would build its C++ library a second time, which takes a minute, with debug information for the
# probes of CMake.
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

# ccache, if it is installed. The compiler that it sees is a script, so the script below says which compiler that runs.
find_program(zig_ccache ccache)
if(zig_ccache)
  execute_process(
    COMMAND "${zig_program}" version
    OUTPUT_VARIABLE zig_version OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  file(
    WRITE "${zig_tools}/ccache"
    "#!/bin/sh\nexport CCACHE_COMPILERTYPE=clang CCACHE_COMPILERCHECK='string:zig ${zig_version} ${HAMI_ZIG_TARGET}'\n"
    "exec \"${zig_ccache}\" \"$@\"\n")
  file(CHMOD "${zig_tools}/ccache" FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
  set(CMAKE_C_COMPILER_LAUNCHER "${zig_tools}/ccache")
  set(CMAKE_CXX_COMPILER_LAUNCHER "${zig_tools}/ccache")
endif()
