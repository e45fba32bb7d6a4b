#include "ridgeline/engine/profile/replay_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

namespace ridgeline::engine {
namespace {

std::string like(const KernelRecord& k) {
  return fmt::format("{} {}x{}x{} {}x{}x{}", k.name, k.grid[0], k.grid[1], k.grid[2], k.block[0],
                     k.block[1], k.block[2]);
}
std::string like(const CopyRecord& copy) { return fmt::format("{} {}", copy.kind, copy.bytes); }

// Something that ran in a launch, and whose it was; the row is -1 where no row launches its like.
struct Piece {
  double begin, end;
  int row;
  size_t step;
};

// Which rows launch what, in their order, and what of it a replay has.
template <typename Record>
class Owners {
 public:
  Owners(const std::vector<DeviceTrace>& alone, std::vector<Record> DeviceTrace::*records,
         const DeviceTrace& replay)
      : replay_(replay.*records) {
    for (size_t row = 0; row < alone.size(); ++row) {
      for (const Record& record : alone[row].*records) rows_[like(record)].push_back(int(row));
    }
    for (const Record& record : replay_) ++found_[like(record)];
  }

  // How many steps the replay has made; 0 when something is left over or missing.
  size_t steps() const {
    std::set<size_t> counts;
    for (const auto& [key, rows] : rows_) {
      const auto found = found_.find(key);
      const size_t count = found == found_.end() ? 0 : found->second;
      counts.insert(count % rows.size() == 0 ? count / rows.size() : 0);
    }
    return counts.size() == 1 ? *counts.begin() : 0;
  }

  // What is there as often as `steps` of the rows launch it is theirs.
  void add_pieces(size_t steps, std::vector<Piece>& pieces) const {
    std::map<std::string, size_t> seen;
    for (const Record& record : replay_) {
      const std::string key = like(record);
      const auto owner = rows_.find(key);
      Piece piece{record.begin, record.end, -1, 0};
      if (owner != rows_.end() && found_.at(key) == steps * owner->second.size()) {
        const size_t count = seen[key]++, a_step = owner->second.size();
        piece.row = owner->second[count % a_step];
        piece.step = count / a_step;
      }
      pieces.push_back(piece);
    }
  }

 private:
  const std::vector<Record>& replay_;
  std::map<std::string, std::vector<int>> rows_;
  std::map<std::string, size_t> found_;
};

// Calls share(piece, seconds) for each stretch of time between two beginnings or ends, with an
// equal part for each piece that ran in it.
template <typename Share>
void split_time(const std::vector<Piece>& pieces, const Share& share) {
  std::vector<std::pair<double, size_t>> begins, ends;
  for (size_t i = 0; i < pieces.size(); ++i) {
    begins.emplace_back(pieces[i].begin, i);
    ends.emplace_back(pieces[i].end, i);
  }
  std::sort(begins.begin(), begins.end());
  std::sort(ends.begin(), ends.end());
  std::set<size_t> running;
  double now = 0;
  size_t next = 0;
  for (const auto& [end, ended] : ends) {
    const auto pass_to = [&](double time) {
      for (const size_t i : running) share(pieces[i], (time - now) / double(running.size()));
      now = time;
    };
    for (; next < begins.size() && begins[next].first <= end; ++next) {
      pass_to(begins[next].first);
      running.insert(begins[next].second);
    }
    pass_to(end);
    running.erase(ended);
  }
}

}  // namespace

std::optional<ReplayTimes> times_in_replay(const std::vector<DeviceTrace>& alone,
                                           const DeviceTrace& replay) {
  const Owners<KernelRecord> kernels(alone, &DeviceTrace::kernels, replay);
  const Owners<CopyRecord> copies(alone, &DeviceTrace::copies, replay);
  const size_t steps = kernels.steps();
  if (steps == 0) return std::nullopt;
  std::vector<Piece> pieces;
  kernels.add_pieces(steps, pieces);
  copies.add_pieces(steps, pieces);  // those of a launch's inputs are no row's
  ReplayTimes times;
  times.rows.assign(alone.size(), std::vector<double>(steps));
  split_time(pieces, [&](const Piece& piece, double seconds) {
    if (piece.row >= 0) times.rows[size_t(piece.row)][piece.step] += seconds;
  });
  return times;
}

}  // namespace ridgeline::engine
