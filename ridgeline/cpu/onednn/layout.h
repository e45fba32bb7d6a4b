#pragma once

#include <dnnl.hpp>

#include "ridgeline/cpu/onednn/primitive.h"
#include "ridgeline/ops/window.h"

namespace ridgeline::cpu {

// oneDNN's kernels take images in one of two layouts: plain, or with the channels in blocks. The
// blocked layouts are formats of the values: "onednn:nChw16c:32x196" has 32 channels of 196 pixels.
// The table holds kernels for both layouts, and the planner weighs the conversions. The channels
// that pad the last block are zero (plan/padding.h): oneDNN's primitives rely on it, and multiply
// them by weights of zero, which turns anything that is not finite into NaN.
enum class Layout { plain, blocked };

using Tag = dnnl::memory::format_tag;

inline dnnl::memory::desc image_memory(Dim n, const Image& image, Tag tag) {
  return {{n, image.c, image.h, image.w}, dnnl::memory::data_type::f32, tag};
}

// The block of channels that suits this CPU's kernels.
Tag blocked_tag();

// Adds the format of `memory` to `uses` unless it is plain; returns false if it has no name.
bool add_use(std::vector<FormatUse>& uses, const Value& value, const dnnl::memory::desc& memory,
             const Image& image);

// Asks oneDNN for the primitive when a kernel's cover is computed, because its layouts decide the
// formats.
template <typename Describe>
Cover ask(const RemainingOps& rest, size_t ops, const Values& values, Describe describe) {
  const std::string why = refuse(values);
  if (!why.empty()) return Cover::no(why);
  if (!has_address_space(kOnednnAddressSpace)) return Cover::no("oneDNN wants more address space");
  try {
    use_omp_threads(cpu_runtime(rest.runtime).pool().size());
    Cover cover = Cover::of(ops);
    return describe(dnnl::engine(dnnl::engine::kind::cpu, 0), cover)
               ? cover
               : Cover::no("oneDNN wants a layout that has no name here");
  } catch (const dnnl::error& error) {
    return Cover::no(fmt::format("oneDNN has none: {}", error.what()));
  }
}

// Refuses if oneDNN chooses plain layouts, because the kernel would repeat the plain one.
inline Cover if_blocked(Cover cover, Layout layout) {
  if (cover.ops > 0 && layout == Layout::blocked && cover.reads.empty() && cover.writes.empty()) {
    return Cover::no("oneDNN wants plain images here");
  }
  return cover;
}

inline std::string kernel_name(const char* what, Layout layout) {
  return fmt::format("cpu.{}.onednn{}", what, layout == Layout::blocked ? ".blocked" : "");
}

// Makes one kernel for each layout from covers(rest, layout) and prepare(span, binding, layout).
template <typename Covers, typename Prepare>
Kernel in_layout(const char* what, Layout layout, Covers covers, Prepare prepare) {
  return onednn_kernel(
      kernel_name(what, layout),
      [=](const RemainingOps& rest) { return if_blocked(covers(rest, layout), layout); },
      [=](const Span& span, const Binding& binding) { return prepare(span, binding, layout); });
}

// Converts between plain and blocked images, and between two kinds of blocks.
KernelTable reorder_kernels();

}  // namespace ridgeline::cpu
