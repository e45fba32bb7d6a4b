#include "ridgeline/data/batches.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "ridgeline/core/error.h"
#include "ridgeline/core/philox.h"
#include "ridgeline/core/widest_vectors.h"

namespace ridgeline::data {
namespace {

// The 64 bits that Philox::below scales, for counters last, last - 1, ...: kDrawn at a time, for
// vectors. 32-bit words are stored in 64 bits, so that their products vectorise too.
constexpr int kDrawn = 32;

RIDGELINE_WIDEST void draw(const Philox& random, uint64_t last, uint64_t* drawn) {
  constexpr uint64_t kLow = 0xffffffffu;
  uint64_t c0[kDrawn], c1[kDrawn], c2[kDrawn], c3[kDrawn];
  for (int i = 0; i < kDrawn; ++i) {
    const uint64_t counter = last - uint64_t(i);
    c0[i] = counter & kLow, c1[i] = counter >> 32;
    c2[i] = random.stream & kLow, c3[i] = random.stream >> 32;
  }
  uint64_t k0 = random.seed & kLow, k1 = random.seed >> 32;
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < kDrawn; ++i) {
      const uint64_t p0 = 0xD2511F53u * c0[i], p1 = 0xCD9E8D57u * c2[i];
      const uint64_t n0 = (p1 >> 32) ^ c1[i] ^ k0, n2 = (p0 >> 32) ^ c3[i] ^ k1;
      c0[i] = n0, c1[i] = p1 & kLow, c2[i] = n2, c3[i] = p0 & kLow;
    }
    k0 = (k0 + 0x9E3779B9u) & kLow;
    k1 = (k1 + 0xBB67AE85u) & kLow;
  }
  for (int i = 0; i < kDrawn; ++i) drawn[i] = (c0[i] << 32) | c1[i];
}

// Fisher-Yates, from the back: element left - 1 is swapped with random.below(left, left).
void shuffle_by_swaps(const Philox& random, std::span<int32_t> order) {
  std::iota(order.begin(), order.end(), 0);
  uint64_t drawn[kDrawn];
  for (uint64_t left = order.size(); left > 1;) {
    draw(random, left, drawn);
    for (int i = 0; i < kDrawn && left > 1; ++i, --left) {
      const auto place = uint64_t((static_cast<unsigned __int128>(drawn[i]) * left) >> 64);
      std::swap(order[left - 1], order[place]);
    }
  }
}

constexpr uint32_t kLanes = 32;  // numbers mapped at a time, in vectors

// Maps the first `count` numbers of a row, at least kLanes. Returns the largest result.
RIDGELINE_WIDEST uint32_t apply_row(const Feistel& net, uint32_t row, uint32_t count,
                                    int32_t* out) {
  uint32_t most = 0;
  for (uint32_t at = 0; at < count; at += kLanes) {
    const uint32_t begin = std::min(at, count - kLanes);  // the last ones overlap others
    uint32_t rows[kLanes], columns[kLanes];
    for (uint32_t i = 0; i < kLanes; ++i) rows[i] = row, columns[i] = begin + i;
    for (int k = 0; k < Feistel::kRounds; k += 2) {
      for (uint32_t i = 0; i < kLanes; ++i) {
        const uint32_t add = Feistel::mixed(columns[i], net.keys[k], net.rows, net.row_bits);
        rows[i] = Feistel::sum(rows[i], add, net.rows);
      }
      for (uint32_t i = 0; i < kLanes; ++i) {
        const uint32_t add = Feistel::mixed(rows[i], net.keys[k + 1], net.columns, net.column_bits);
        columns[i] = Feistel::sum(columns[i], add, net.columns);
      }
    }
    for (uint32_t i = 0; i < kLanes; ++i) {
      const uint32_t mapped = rows[i] * net.columns + columns[i];
      out[begin + i] = int32_t(mapped);
      most = std::max(most, mapped);
    }
  }
  return most;
}

void shuffle_by_network(const Feistel& net, std::span<int32_t> order) {
  for (uint32_t row = 0; row * net.columns < net.n; ++row) {
    const uint32_t first = row * net.columns, count = std::min(net.columns, net.n - first);
    int32_t* const out = order.data() + first;
    if (count >= kLanes && apply_row(net, row, count, out) < net.n) continue;
    for (uint32_t i = 0; i < count; ++i) out[i] = int32_t(net(first + i));
  }
}

}  // namespace

std::optional<Feistel> epoch_network(int64_t n, uint64_t seed, uint64_t epoch) {
  // Random swaps over the memory of a larger set take several times as long as the Feistel network.
  constexpr int64_t kMostSwapped = int64_t{1} << 18;
  if (n <= kMostSwapped) return std::nullopt;
  return Feistel(uint32_t(n), {seed, streams::kShuffle + epoch});
}

void epoch_order(uint64_t seed, uint64_t epoch, bool shuffle, std::span<int32_t> order) {
  if (!shuffle) {
    std::iota(order.begin(), order.end(), 0);
  } else if (const auto network = epoch_network(int64_t(order.size()), seed, epoch)) {
    shuffle_by_network(*network, order);
  } else {
    shuffle_by_swaps({seed, streams::kShuffle + epoch}, order);
  }
}

std::vector<int32_t> epoch_order(int64_t n, uint64_t seed, uint64_t epoch, bool shuffle) {
  if (n < 0 || n > std::numeric_limits<int32_t>::max()) {
    throw_error(ErrorKind::data, "{} samples: a set holds at most {}", n,
                std::numeric_limits<int32_t>::max());
  }
  std::vector<int32_t> order(static_cast<size_t>(n));
  epoch_order(seed, epoch, shuffle, order);
  return order;
}

BatchPlan::BatchPlan(int64_t n, int64_t batch, bool drop_last) : n_(n), batch_(batch) {
  if (n < 1 || batch < 1) {
    throw_error(ErrorKind::usage, "batch {} of {} samples: both must be at least 1", batch, n);
  }
  batches_ = n / batch + (!drop_last && n % batch != 0 ? 1 : 0);
  if (batches_ == 0) {
    throw_error(ErrorKind::usage,
                "batch {} is larger than the {} samples, and the last partial batch is dropped: "
                "no batch is left; make the batch smaller or keep the last one",
                batch, n);
  }
}

int64_t BatchPlan::size(int64_t k) const { return std::min(batch_, n_ - begin(k)); }

Range shard(int64_t batch_begin, int64_t batch_size, int rank, int ranks) {
  const Range part = split(batch_size, rank, ranks);
  return {batch_begin + part.begin, batch_begin + part.end};
}

}  // namespace ridgeline::data
