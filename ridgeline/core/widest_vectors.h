#pragma once

// A function with this attribute uses the widest vectors of the machine, chosen when the program is
// loaded. Sanitizers do not support that choice.
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && __GNUC__ >= 12 && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define RIDGELINE_WIDEST __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define RIDGELINE_WIDEST
#endif
