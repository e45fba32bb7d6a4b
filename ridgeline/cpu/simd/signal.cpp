#include "ridgeline/cpu/simd/signal.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "ridgeline/cpu/simd/kernel.h"

namespace ridgeline::cpu::simd {
namespace {

constexpr std::string_view kPrefix = "rows:";

std::optional<Image> parse(const Format& format) {
  if (!format.starts_with(kPrefix)) return {};
  Image signal;
  const char* end = format.data() + format.size();
  const auto channels = std::from_chars(format.data() + kPrefix.size(), end, signal.c);
  if (channels.ec != std::errc{} || channels.ptr == end) return {};
  const auto positions = std::from_chars(channels.ptr + 1, end, signal.w);
  if (positions.ec != std::errc{} || positions.ptr != end) return {};
  return signal;
}

// to[i, column, row] = from[i, row, column]
template <typename T>
void transpose(const T* from, int64_t rows, int64_t columns, T* to, Range samples) {
  constexpr int64_t kTile = 32;  // both sides of a tile stay in the first-level cache
  for (int64_t i = samples.begin; i < samples.end; ++i) {
    const T* source = from + i * rows * columns;
    T* target = to + i * rows * columns;
    for (int64_t r0 = 0; r0 < rows; r0 += kTile) {
      for (int64_t c0 = 0; c0 < columns; c0 += kTile) {
        for (int64_t c = c0; c < std::min(c0 + kTile, columns); ++c) {
          for (int64_t r = r0; r < std::min(r0 + kTile, rows); ++r) {
            target[c * rows + r] = source[r * columns + c];
          }
        }
      }
    }
  }
}

template <typename T>
std::unique_ptr<Step> prepare_transpose(const Binding& binding) {
  const bool from_plain = binding.from().empty();
  const Image signal = *parse(from_plain ? binding.to() : binding.from());
  const Value value = binding.converted();
  return make_step([n = value.shape[0], rows = from_plain ? signal.c : signal.w,
                    columns = from_plain ? signal.w : signal.c, from = binding.read(value).as<T>(),
                    to = binding.write(value).as<T>(),
                    &pool = cpu_runtime(binding.runtime()).pool()] {
    pool.share(n, 1, 1, [&](Range samples) { transpose(from, rows, columns, to, samples); });
  });
}

Format rows_format(const Image& signal) {
  return fmt::format("{}{}x{}", kPrefix, signal.c, signal.pixels());
}

// Whether it is a max pool of three positions; a remainder of the length is ignored.
bool is_pool_of_three(const MaxPool& pool) {
  const Window& window = pool.shape.window;
  return pool.shape.in.h == 1 && window.h.kernel == 1 && window.h.pad == 0 &&
         window.w == Slide{3, 3, 0, 1};
}

}  // namespace

void use_rows(std::vector<FormatUse>& uses, const Value& value, const Image& signal) {
  uses.push_back({value.id, rows_format(signal), size_t(size_of(value))});
}

Kernel transpose_kernel() {
  Kernel kernel;
  kernel.name = "cpu.channel_rows.simd";
  kernel.converts = [](const Value& value, const Format& from, const Format& to) {
    const auto signal = parse(from.empty() ? to : from);
    return from.empty() != to.empty() && signal && value.shape.rank() == 2 &&
           value.shape[1] == signal->numel() && is_float(value.dtype);
  };
  kernel.prepare = [](const Span&, const Binding& binding) {
    switch (size_of(binding.converted().dtype)) {
      case 2:
        return prepare_transpose<uint16_t>(binding);
      case 4:
        return prepare_transpose<uint32_t>(binding);
      default:
        return prepare_transpose<uint64_t>(binding);
    }
  };
  return kernel;
}

SignalConv signal_conv_at(const RemainingOps& rest) {
  SignalConv found;
  const auto* conv = rest.get<Conv2d>(0);
  if (conv == nullptr) return {};
  const Conv2dShape& shape = conv->shape;
  const Slide &down = shape.window.h, &right = shape.window.w;
  if (shape.in.h != 1 || shape.groups != 1 || down.kernel != 1 || down.pad != 0) return {};
  if (right.stride != 1 || right.pad != 0 || right.dilation != 1 || conv->n() == 0) return {};
  found.conv = conv;
  const auto* relu = rest.get<Activation>(1);
  if (relu != nullptr && relu->kind == ActivationKind::relu && relu->x.id == conv->y.id) {
    found.relu = relu;
  }
  const auto* pool = rest.get<MaxPool>(found.ops());
  if (pool != nullptr && pool->x.id == found.y().id && is_pool_of_three(*pool)) found.pool = pool;
  return found;
}

Cover cover_in_rows(const RemainingOps& rest, const SignalConv& span) {
  Cover cover = Cover::of(span.ops());
  Values inner;
  if (span.ops() > 1) inner.push_back(span.conv->y);
  if (span.relu != nullptr && span.pool != nullptr) inner.push_back(span.relu->y);
  for (const Value& value : inner) {
    if (!rest.dead_after(value, span.ops())) {
      return Cover::no("a value between the ops is needed later");
    }
    cover.skips.push_back(value.id);
  }
  use_rows(cover.reads, span.conv->x, span.conv->shape.in);
  use_rows(cover.writes, span.y(), span.out());
  return cover;
}

SignalNorm signal_norm_at(const RemainingOps& rest, size_t offset) {
  const SignalNorm found{rest.get<LayerNorm>(offset), rest.get<Activation>(offset + 1),
                         rest.get<MaxPool>(offset + 2)};
  if (found.norm == nullptr || found.relu == nullptr || found.pool == nullptr) return {};
  if (found.relu->kind != ActivationKind::relu || found.relu->x.id != found.norm->y.id ||
      found.pool->x.id != found.relu->y.id) {
    return {};
  }
  return found;
}

std::string refuse(const SignalNorm& span) {
  const LayerNorm& norm = *span.norm;
  const DType dtype = norm.x.dtype;
  if (norm.mean || norm.rstd) return "keeps no moments for a gradient";
  if (norm.rows() != norm.x.shape[0] || norm.rows() == 0 || !norm.gamma || !norm.beta ||
      norm.gamma.dtype != dtype || norm.beta.dtype != dtype) {
    return "normalises whole samples with gamma and beta";
  }
  if (!is_pool_of_three(*span.pool)) return "takes a pool of three";
  return {};
}

}  // namespace ridgeline::cpu::simd
