// Clang's thread-safety attributes: `clang++ -Wthread-safety` proves that guarded members are used under their mutex.
#pragma once

#if defined(__clang__)
#define HAMI_THREAD_ATTRIBUTE(attribute) __attribute__((attribute))
#else
#define HAMI_THREAD_ATTRIBUTE(attribute)
#endif

#define HAMI_CAPABILITY(name) HAMI_THREAD_ATTRIBUTE(capability(name))
#define HAMI_SCOPED_CAPABILITY HAMI_THREAD_ATTRIBUTE(scoped_lockable)
#define HAMI_GUARDED_BY(mutex) HAMI_THREAD_ATTRIBUTE(guarded_by(mutex))
#define HAMI_ACQUIRE(...) HAMI_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define HAMI_RELEASE(...) HAMI_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define HAMI_TRY_ACQUIRE(...) HAMI_THREAD_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
#define HAMI_REQUIRES(...) HAMI_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define HAMI_ASSERT_HELD(...) HAMI_THREAD_ATTRIBUTE(assert_capability(__VA_ARGS__))
#define HAMI_NO_THREAD_SAFETY_ANALYSIS HAMI_THREAD_ATTRIBUTE(no_thread_safety_analysis)
