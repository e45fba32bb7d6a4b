#include "ridgeline/engine/sweep/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ridgeline/core/file.h"
#include "ridgeline/core/json.h"
#include "ridgeline/core/text.h"
#include "ridgeline/engine/sweep/point_json.h"

namespace ridgeline::engine {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kHead = R"({"ridgeline_sweep":1,)";

std::string name_of(int rank) {
  return rank == 0 ? "sweep.jsonl" : fmt::format("sweep.{}.jsonl", rank);
}

// The journals of a folder: of the root, and of ranks as long as there are any.
std::vector<fs::path> journals(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name == name_of(0) || (name.starts_with("sweep.") && name.ends_with(".jsonl"))) {
      found.push_back(entry.path());
    }
  }
  return found;
}

struct Kept {
  std::string first_line;
  std::map<size_t, SweepPoint> points;
};

// A line that was cut off when its writer was killed counts as not written.
Kept read_journal(const fs::path& file) {
  Kept kept;
  const std::string text = read_text_file(file, ErrorKind::io);
  std::istringstream lines(text);
  std::getline(lines, kept.first_line);
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json json = parse_json(line);
    if (!json.is_object() || !json.contains("combination")) continue;
    if (!json["combination"].is_number_unsigned()) continue;
    try {
      kept.points[json["combination"].get<size_t>()] = read_point(json);
    } catch (const Error&) {
      continue;
    }
  }
  return kept;
}

}  // namespace

bool SweepJournal::is_own(std::string_view head) {
  return head.empty() || head.starts_with(kHead.substr(0, head.size()));
}

std::string SweepJournal::first_line() const {
  return fmt::format("{}\"combinations\":{},\"settings\":\"{}\"}}", kHead, combinations_, sweep_);
}

SweepJournal::SweepJournal(fs::path folder, std::string sweep, size_t combinations, bool resume,
                           bool force, int rank)
    : folder_(std::move(folder)), sweep_(std::move(sweep)), combinations_(combinations) {
  make_folder("--out", folder_);
  size_t done = 0;
  bool any = false;
  for (const fs::path& file : journals(folder_)) {
    const Kept kept = read_journal(file);
    if (kept.first_line.empty()) continue;
    if (!is_own(kept.first_line)) {
      throw_error(ErrorKind::usage,
                  "--out {}: ridgeline did not write the {} there: move it away, or choose another "
                  "folder",
                  folder_.string(), file.filename().string());
    }
    any = true;
    done += kept.points.size();
    if (resume && kept.first_line != first_line()) {
      throw_error(ErrorKind::usage,
                  "--resume: {} holds another sweep: give the config and the --set it was begun "
                  "with, or begin anew with --force",
                  folder_.string());
    }
    if (!resume) {
      const nlohmann::json head = parse_json(kept.first_line);
      const size_t all = head.is_object() ? head.value("combinations", size_t{0}) : 0;
      if (done >= all || force || rank != 0) continue;
      throw_error(ErrorKind::usage,
                  "--out {}: holds a sweep of which {} of {} combinations are done: continue it "
                  "with --resume, replace it with --force, or choose another folder",
                  folder_.string(), done, all);
    }
  }
  if (!resume && rank == 0 && any) {
    for (const fs::path& file : journals(folder_)) fs::remove(file);
    fs::remove_all(members());
  }
  open(rank);
}

void SweepJournal::open(int rank) {
  const fs::path path = folder_ / name_of(rank);
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (file_ < 0) throw_errno(ErrorKind::io, path, "open");
  if (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
    ::close(file_);
    throw_error(ErrorKind::io,
                "--out {}: another process is using this folder; wait for it or "
                "choose another",
                folder_.string());
  }
  const off_t size = ::lseek(file_, 0, SEEK_END);
  std::string begin;
  if (size == 0) {
    begin = first_line() + "\n";
  } else {
    // A line that was cut off must not swallow the next one.
    char last = '\n';
    if (::pread(file_, &last, 1, size - 1) == 1 && last != '\n') begin = "\n";
  }
  write_all(file_, std::as_bytes(std::span(begin)), path);
}

SweepJournal::~SweepJournal() { ::close(file_); }

std::map<size_t, SweepPoint> SweepJournal::points() const {
  std::map<size_t, SweepPoint> all;
  for (const fs::path& file : journals(folder_)) {
    for (auto& [combination, point] : read_journal(file).points) {
      if (combination < combinations_) all.insert_or_assign(combination, std::move(point));
    }
  }
  return all;
}

void SweepJournal::append(size_t combination, const SweepPoint& point) {
  nlohmann::json json = to_json(point);
  json["combination"] = combination;
  const std::string line = dump_json(json, -1) + "\n";
  write_all(file_, std::as_bytes(std::span(line)), folder_ / name_of(0));
  ::fdatasync(file_);
}

}  // namespace ridgeline::engine
