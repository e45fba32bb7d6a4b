#include "ridgeline/cpu/simd/dropout.h"

#include <algorithm>

#include "ridgeline/core/philox.h"
#include "ridgeline/cpu/simd/dispatch.h"
#include "ridgeline/cpu/simd/layout.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ridgeline/cpu/simd/dropout.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace dropout {
namespace hn = hwy::HWY_NAMESPACE;

using Wide = hn::ScalableTag<uint64_t>;
using WideVec = hn::Vec<Wide>;

// Returns the 64-bit product of the low halves.
HWY_INLINE WideVec product(WideVec a, WideVec b) {
#if HWY_TARGET == HWY_SCALAR
  const auto low = [](WideVec v) { return hn::GetLane(v) & 0xffffffffu; };
  return hn::Set(Wide(), low(a) * low(b));  // one lane: no pairs to multiply
#else
  const hn::Repartition<uint32_t, Wide> narrow;
  return hn::MulEven(hn::BitCast(narrow, a), hn::BitCast(narrow, b));
#endif
}

struct Words {
  WideVec w[4];  // each in the low half of its lane
};

// Philox4x32-10 with one counter per lane. Returns the same numbers as Philox::words.
HWY_INLINE Words philox(WideVec counters, uint64_t stream, uint64_t seed) {
  // The high half of a lane may hold anything: products and the result do not read it.
  const Wide d;
  WideVec c0 = counters, c1 = hn::ShiftRight<32>(counters);
  WideVec c2 = hn::Set(d, stream & 0xffffffffu), c3 = hn::Set(d, stream >> 32);
  const WideVec m0 = hn::Set(d, 0xD2511F53u), m1 = hn::Set(d, 0xCD9E8D57u);
  uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const WideVec p0 = product(c0, m0), p1 = product(c2, m1);
    c0 = hn::Xor3(hn::ShiftRight<32>(p1), c1, hn::Set(d, uint64_t{k0}));
    c2 = hn::Xor3(hn::ShiftRight<32>(p0), c3, hn::Set(d, uint64_t{k1}));
    c1 = p1;
    c3 = p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

using Narrow = hn::Rebind<uint32_t, Wide>;
HWY_INLINE hn::Vec<Narrow> narrow(WideVec words) { return hn::TruncateTo(Narrow(), words); }

// Computes x * scale for elements whose random words say keep, else 0.
template <typename T>
class Keep {
 public:
  Keep(float p, T scale) : least_(T(p) * T(1 << 24)), scale_(scale) {}

  // Handles one vector; `factor`, if not null, gets scale or 0.
  HWY_INLINE void vector(const uint32_t* words, const T* x, T* y, T* factor) const {
    const hn::ScalableTag<T> d;
    const hn::Rebind<int32_t, decltype(d)> di;
    const auto bits = hn::ShiftRight<8>(hn::LoadU(hn::RebindToUnsigned<decltype(di)>(), words));
    const auto keep = hn::Ge(number(hn::BitCast(di, bits)), hn::Set(d, least_));
    const auto scale = hn::Set(d, scale_);
    hn::StoreU(hn::IfThenElseZero(keep, hn::Mul(hn::LoadU(d, x), scale)), d, y);
    if (factor != nullptr) hn::StoreU(hn::IfThenElseZero(keep, scale), d, factor);
  }
  HWY_INLINE T one(uint32_t word, T x) const { return T(word >> 8) >= least_ ? x * scale_ : T(0); }

 private:
  template <class V>
  static HWY_INLINE auto number(V bits) {
    const hn::ScalableTag<T> d;
    if constexpr (sizeof(T) == 4) {
      return hn::ConvertTo(d, bits);
    } else {
      return hn::PromoteTo(d, bits);
    }
  }

  T least_;  // of a word's upper 24 bits, which are exact in T, like p * 2^24
  T scale_;
};

// Fills in the words of the elements from `first` on, a multiple of 4; whole vectors of counters.
HWY_INLINE void fill_words(uint64_t first, uint64_t stream, uint64_t seed, int64_t count,
                           uint32_t* words) {
  const Wide d;
  const int64_t at_once = 4 * int64_t(hn::Lanes(d));
  for (int64_t i = 0; i < count; i += at_once) {
    const WideVec counters = hn::Add(hn::Set(d, (first + uint64_t(i)) / 4), hn::Iota(d, 0));
    const Words random = philox(counters, stream, seed);
    hn::StoreInterleaved4(narrow(random.w[0]), narrow(random.w[1]), narrow(random.w[2]),
                          narrow(random.w[3]), Narrow(), words + i);
  }
}

template <typename T>
void dropout(const DropoutArgs<T>& g, Range elements) {
  constexpr int64_t kWords = 256;  // a multiple of the words of a vector of counters
  HWY_ALIGN uint32_t words[kWords];
  const int64_t lanes = int64_t(hn::Lanes(hn::ScalableTag<T>()));
  const Keep<T> keep(g.p, g.scale);
  for (int64_t begin = elements.begin, count; begin < elements.end; begin += count) {
    const uint64_t element = g.first + uint64_t(begin);
    const int64_t skipped = int64_t(element % 4);  // words of the first counter
    count = std::min(kWords - skipped, elements.end - begin);
    fill_words(element - uint64_t(skipped), g.stream, g.seed, skipped + count, words);
    int64_t i = 0;
    for (; i + lanes <= count; i += lanes) {
      keep.vector(words + skipped + i, g.x + begin + i, g.y + begin + i, nullptr);
    }
    for (; i < count; ++i) g.y[begin + i] = keep.one(words[skipped + i], g.x[begin + i]);
  }
}

// The words of `count` features from f on, for the rows of a panel.
template <typename T>
HWY_INLINE void fill_panel_words(const PanelDropoutArgs<T>& g, int64_t first_row, int64_t f,
                                 int64_t count, const uint64_t* row_elements, uint32_t* words) {
  const Wide d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  const WideVec first = hn::Set(d, uint64_t(first_row * g.features + f));
  for (int64_t r = 0; r < kPanel<T>; r += lanes) {
    const WideVec element = hn::Add(first, hn::Load(d, row_elements + r));
    const Words random = philox(hn::ShiftRight<2>(element), g.stream, g.seed);
    const WideVec phase = hn::And(element, hn::Set(d, uint64_t{3}));
    for (int64_t j = 0; j < count; ++j) {
      WideVec word = random.w[0];
      for (int k = 1; k < 4; ++k) {
        const auto here = hn::Eq(hn::Add(phase, hn::Set(d, uint64_t(j))), hn::Set(d, uint64_t(k)));
        word = hn::IfThenElse(here, random.w[k], word);
      }
      hn::StoreU(narrow(word), Narrow(), words + j * kPanel<T> + r);
    }
  }
}

template <typename T>
void dropout_panels(const PanelDropoutArgs<T>& g, Range features, int64_t n) {
  HWY_ALIGN uint64_t row_elements[kPanel<T>];
  HWY_ALIGN uint32_t words[4 * kPanel<T>];
  for (int64_t r = 0; r < kPanel<T>; ++r) row_elements[r] = uint64_t(r * g.features);
  const int64_t lanes = int64_t(hn::Lanes(hn::ScalableTag<T>()));
  const Keep<T> keep(g.p, g.scale);
  const bool in_fours = g.features % 4 == 0;  // then all rows share their counters' features
  for (int64_t panel = 0; panel < panels_of<T>(n); ++panel) {
    for (int64_t f = features.begin, count; f < features.end; f += count) {
      count = in_fours ? std::min(4 - f % 4, features.end - f) : 1;
      fill_panel_words(g, g.first_row + panel * kPanel<T>, f, count, row_elements, words);
      const int64_t at = (panel * g.features + f) * kPanel<T>;
      for (int64_t i = 0; i < count * kPanel<T>; i += lanes) {
        keep.vector(words + i, g.x + at + i, g.y + at + i, g.keep + at + i);
      }
    }
  }
}

template <typename T>
inline constexpr DropoutFunctions<T> kDropoutTable{dropout<T>, dropout_panels<T>};

}  // namespace dropout

RIDGELINE_SIMD_TABLE(DropoutFunctions, dropout_functions, dropout::kDropoutTable)

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu::simd {

RIDGELINE_SIMD_DISPATCH(DropoutFunctions, dropout_functions);

}  // namespace ridgeline::cpu::simd
#endif  // HWY_ONCE
