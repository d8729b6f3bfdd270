# Stops where there are no wheels because the core does not run there: pip then compiles the source distribution instead.
if(Python_INTERPRETER_ID MATCHES "PyPy|IronPython" OR NOT CMAKE_SIZEOF_VOID_P EQUAL 8)
  math(EXPR bits "8 * ${CMAKE_SIZEOF_VOID_P}")
  message(FATAL_ERROR "hami-core needs CPython 3.10 or newer, 64 bits; "
    "this is ${Python_INTERPRETER_ID} ${Python_VERSION}, ${bits} bits: ${Python_EXECUTABLE}")
endif()
