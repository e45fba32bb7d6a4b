#pragma once

// How a table of kernels, Table<T>, compiled once per instruction set, becomes a function
//   template <typename T> const Table<T>& name();
// that returns the one for this machine. Highway exports plain functions, so each table has one for
// either type.

// In the namespace of an instruction set; `values` is a constexpr variable template.
#define RIDGELINE_SIMD_TABLE(Table, name, values)               \
  const Table<float>* float_##name() { return &values<float>; } \
  const Table<double>* double_##name() { return &values<double>; }

// Under HWY_ONCE, in the namespace that declares name().
#define RIDGELINE_SIMD_DISPATCH(Table, name)       \
  HWY_EXPORT(float_##name);                        \
  HWY_EXPORT(double_##name);                       \
  template <>                                      \
  const Table<float>& name<float>() {              \
    return *HWY_DYNAMIC_DISPATCH(float_##name)();  \
  }                                                \
  template <>                                      \
  const Table<double>& name<double>() {            \
    return *HWY_DYNAMIC_DISPATCH(double_##name)(); \
  }                                                \
  static_assert(true, "takes the semicolon")
