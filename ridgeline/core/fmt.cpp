// Compiles the functions of fmt 9 once for the whole library. Header-only fmt costs every file
// about three seconds of compile time, and Debian ships the compiled library only as a shared
// object, which a machine that a binary is copied to may not have. Other versions of fmt are linked
// as they are (CMakeLists.txt), because their internals differ.

#include <fmt/core.h>

#if FMT_VERSION / 10000 == 9

#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {

template auto dragonbox::to_decimal(float) noexcept -> dragonbox::decimal_fp<float>;
template auto dragonbox::to_decimal(double) noexcept -> dragonbox::decimal_fp<double>;
template locale_ref::locale_ref(const std::locale&);
template auto locale_ref::get<std::locale>() const -> std::locale;
template auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref) -> char;
template void buffer<char>::append(const char*, const char*);
template void vformat_to(buffer<char>&, string_view, basic_format_args<buffer_context<char>>,
                         locale_ref);

}  // namespace detail
FMT_END_NAMESPACE

#endif
