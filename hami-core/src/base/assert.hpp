// HAMI_ASSERT: an invariant that is checked in development, sanitizer and test builds, and costs nothing in a release.
#pragma once

#ifdef HAMI_ASSERTIONS
#include <cstdio>
#include <cstdlib>

#define HAMI_ASSERT(condition)                                                                               \
  do {                                                                                                       \
    if (!(condition)) {                                                                                      \
      std::fprintf(stderr, "%s:%d: assertion failed in %s: %s\n", __FILE__, __LINE__, __func__, #condition); \
      std::abort();                                                                                          \
    }                                                                                                        \
  } while (false)
#else
#define HAMI_ASSERT(condition) static_cast<void>(sizeof((condition) ? 1 : 0))
#endif
