#pragma once

// These macros turn a table of functions, Functions<T>, compiled once per instruction set, into a
// function
//   template <typename T> const Functions<T>& name();
// that returns the table for this machine. Highway exports plain functions, so each table has one
// for either type.

// Used in the namespace of an instruction set; `values` is a constexpr variable template.
#define RIDGELINE_SIMD_TABLE(Functions, name, values)               \
  const Functions<float>* float_##name() { return &values<float>; } \
  const Functions<double>* double_##name() { return &values<double>; }

// Used under HWY_ONCE, in the namespace that declares name().
#define RIDGELINE_SIMD_DISPATCH(Functions, name)   \
  HWY_EXPORT(float_##name);                        \
  HWY_EXPORT(double_##name);                       \
  template <>                                      \
  const Functions<float>& name<float>() {          \
    return *HWY_DYNAMIC_DISPATCH(float_##name)();  \
  }                                                \
  template <>                                      \
  const Functions<double>& name<double>() {        \
    return *HWY_DYNAMIC_DISPATCH(double_##name)(); \
  }                                                \
  static_assert(true, "takes the semicolon")
