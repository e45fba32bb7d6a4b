// Linked into the tool and the tests of sanitized builds: how the sanitizers are to behave.

#pragma GCC visibility push(default)  // else the sanitizers' shared libraries do not find these
extern "C" {

// An allocation that the machine cannot give returns null, as it does without the sanitizer: the
// code under test turns that into an Error.
const char* __asan_default_options() {
  return "allocator_may_return_null=1:strict_string_checks=1:detect_stack_use_after_return=1";
}

const char* __tsan_default_options() { return "allocator_may_return_null=1:halt_on_error=1"; }

const char* __ubsan_default_options() { return "print_stacktrace=1"; }

// Open MPI and the OpenCL loader that oneDNN starts keep what they allocate until the process ends.
const char* __lsan_default_suppressions() {
  return "leak:libmpi.so\n"
         "leak:libopen-rte.so\n"
         "leak:libopen-pal.so\n"
         "leak:libOpenCL.so\n"
         "leak:libhwloc.so\n"
         "leak:libpmix.so\n"
         "leak:mca_\n";
}

}  // extern "C"
#pragma GCC visibility pop
