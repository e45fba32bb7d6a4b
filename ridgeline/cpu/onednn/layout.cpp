#ifdef RIDGELINE_HAVE_ONEDNN

#include "ridgeline/cpu/onednn/layout.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace ridgeline::cpu {
namespace {

constexpr std::pair<std::string_view, Tag> kTags[] = {
    {"nChw16c", Tag::nChw16c}, {"nChw8c", Tag::nChw8c}, {"nhwc", Tag::nhwc}};
constexpr std::string_view kPrefix = "onednn:";

struct Parsed {
  Tag tag = Tag::nchw;
  Image image;  // all pixels in one row
};

// "" or "onednn:nChw16c:32x196"; nothing for other formats. A plain value has the image of the
// other side of the conversion.
std::optional<Parsed> parse(const Format& format) {
  if (!format.starts_with(kPrefix)) return std::nullopt;
  for (const auto& [name, tag] : kTags) {
    const std::string start = fmt::format("{}{}:", kPrefix, name);
    if (!format.starts_with(start)) continue;
    Parsed parsed{tag, {}};
    const char* end = format.data() + format.size();
    const auto channels = std::from_chars(format.data() + start.size(), end, parsed.image.c);
    if (channels.ec != std::errc{} || channels.ptr == end) return std::nullopt;
    const auto pixels = std::from_chars(channels.ptr + 1, end, parsed.image.w);
    if (pixels.ec != std::errc{} || pixels.ptr != end) return std::nullopt;
    return parsed;
  }
  return std::nullopt;
}

// The channels of a block; 0 for a layout without blocks.
int64_t block_of(Tag tag) { return tag == Tag::nChw16c ? 16 : tag == Tag::nChw8c ? 8 : 0; }

// Between plain images and blocks, which our own threads convert in a few microseconds: oneDNN's
// first have to wake up.
bool converts_blocks(const Value& value, const Format& from, const Format& to) {
  if (value.dtype != DType::fp32 || value.shape.rank() != 2) return false;
  if (from.empty() == to.empty()) return false;
  const auto blocked = parse(from.empty() ? to : from);
  return blocked && block_of(blocked->tag) > 0;
}

// One image. A few pixels at a time, so that those of all channels stay in the first-level cache.
template <bool kToBlocks, typename Plain, typename Blocked>
void convert_image(const Image& image, int64_t block, Plain* plain, Blocked* blocked) {
  constexpr int64_t kPixels = 256;
  const int64_t pixels = image.pixels(), blocks = (image.c + block - 1) / block;
  for (int64_t b = 0; b < blocks; ++b, blocked += pixels * block) {
    for (int64_t begin = 0; begin < pixels; begin += kPixels) {
      const int64_t end = std::min(begin + kPixels, pixels);
      for (int64_t k = 0; k < block; ++k) {
        const int64_t c = b * block + k;
        if constexpr (kToBlocks) {
          for (int64_t p = begin; p < end; ++p) {
            blocked[p * block + k] = c < image.c ? plain[c * pixels + p] : 0.0f;
          }
        } else {
          if (c >= image.c) break;
          for (int64_t p = begin; p < end; ++p) plain[c * pixels + p] = blocked[p * block + k];
        }
      }
    }
  }
}

std::unique_ptr<Step> prepare_blocks(const Span&, const Binding& binding) {
  const bool to_blocks = binding.from().empty();
  const Parsed blocked = *parse(to_blocks ? binding.to() : binding.from());
  const Value value = binding.converted();
  const int64_t block = block_of(blocked.tag), plain = blocked.image.numel();
  const int64_t padded = (blocked.image.c + block - 1) / block * block * blocked.image.pixels();
  return make_step([from = binding.read(value).as<float>(), to = binding.write(value).as<float>(),
                    n = value.shape[0], image = blocked.image, block, plain, padded, to_blocks,
                    &pool = cpu_runtime(binding.runtime()).pool()] {
    constexpr int64_t kLeast = 4096;  // elements that are worth waking a thread for
    pool.share(n, 1, kLeast / padded + 1, [&](Range images) {
      for (int64_t i = images.begin; i < images.end; ++i) {
        if (to_blocks) {
          convert_image<true>(image, block, from + i * plain, to + i * padded);
        } else {
          convert_image<false>(image, block, to + i * plain, from + i * padded);
        }
      }
    });
  });
}

bool converts(const Value& value, const Format& from, const Format& to) {
  if (value.dtype != DType::fp32 || value.shape.rank() != 2) return false;
  const auto before = parse(from), after = parse(to);
  // A reorder moves an image's numbers. As an image with other channels the same values have
  // another order, which only the plain format can produce.
  if (before && after && (before->image.c != after->image.c || before->image.w != after->image.w)) {
    return false;
  }
  return from.empty() ? after.has_value() : before.has_value() && (to.empty() || after.has_value());
}

std::unique_ptr<Step> prepare_reorder(const Span&, const Binding& binding) {
  return checked("cpu.reorder.onednn", [&] {
    const auto before = parse(binding.from()), after = parse(binding.to());
    const Value value = binding.converted();
    const Image image = before ? before->image : after->image;
    auto chain = std::make_unique<PrimitiveChain>(binding);
    const auto side = [&](const std::optional<Parsed>& parsed, const Tensor& tensor) {
      return chain->memory(image_memory(value.shape[0], image, parsed ? parsed->tag : Tag::nchw),
                           tensor);
    };
    const auto from = side(before, binding.read(value)), to = side(after, binding.write(value));
    chain->add(dnnl::reorder(from, to), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
    return chain;
  });
}

// Returns the format of a value with the layout `memory`; nothing if oneDNN chose a layout without
// a name.
std::optional<Format> format_of(const dnnl::memory::desc& memory, Dim n, const Image& image) {
  if (memory == image_memory(n, image, Tag::nchw)) return Format{};
  for (const auto& [name, tag] : kTags) {
    if (memory != image_memory(n, image, tag)) continue;
    // A single block of channels is the same as channels last, and the same bytes must have one
    // name.
    const bool one_block = tag == Tag::nhwc && (image.c == 16 || image.c == 8);
    const std::string_view named = !one_block ? name : image.c == 16 ? "nChw16c" : "nChw8c";
    return fmt::format("{}{}:{}x{}", kPrefix, named, image.c, image.pixels());
  }
  return std::nullopt;
}

}  // namespace

Tag blocked_tag() {
  static const bool wide = [] {
    const auto isa = int(dnnl::get_effective_cpu_isa());
    return (isa & int(dnnl::cpu_isa::avx512_core)) == int(dnnl::cpu_isa::avx512_core);
  }();
  return wide ? Tag::nChw16c : Tag::nChw8c;
}

bool add_use(std::vector<FormatUse>& uses, const Value& value, const dnnl::memory::desc& memory,
             const Image& image) {
  const auto format = format_of(memory, value.shape[0], image);
  if (!format) return false;
  if (!format->empty()) uses.push_back({value.id, *format, memory.get_size()});
  return true;
}

KernelTable reorder_kernels() {
  Kernel blocks, other;
  blocks.name = "cpu.reorder.blocks";
  blocks.converts = converts_blocks;
  blocks.prepare = prepare_blocks;
  other.name = "cpu.reorder.onednn";
  other.converts = converts;
  other.prepare = prepare_reorder;
  return {blocks, other};
}

}  // namespace ridgeline::cpu

#endif
