#include "ridgeline/engine/sweep/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "ridgeline/core/file.h"
#include "ridgeline/core/json.h"
#include "ridgeline/core/text.h"
#include "ridgeline/engine/sweep/point_json.h"

namespace ridgeline::engine {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kHead = R"({"ridgeline_sweep":1,)";

struct JournalContents {
  std::string first_line;
  std::map<size_t, SweepPoint> points;
};

// A line that was truncated because its writer was killed is ignored.
JournalContents read_journal(const fs::path& file) {
  JournalContents kept;
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

std::optional<size_t> combinations_of(const std::string& first_line) {
  const nlohmann::json head = parse_json(first_line);
  if (!head.is_object()) return std::nullopt;
  const auto found = head.find("combinations");
  if (found == head.end() || !found->is_number_unsigned()) return std::nullopt;
  return found->get<size_t>();
}

}  // namespace

bool SweepJournal::is_journal(std::string_view head) {
  return head.empty() || head.starts_with(kHead.substr(0, head.size()));
}

std::string SweepJournal::first_line() const {
  return fmt::format("{}\"combinations\":{},\"settings\":\"{}\"}}", kHead, combinations_, sweep_);
}

SweepJournal::SweepJournal(fs::path folder, std::string sweep, size_t combinations, bool resume,
                           bool force)
    : folder_(std::move(folder)), sweep_(std::move(sweep)), combinations_(combinations) {
  make_folder("--out", folder_);
  std::error_code ignored;
  const JournalContents kept =
      fs::exists(path(), ignored) ? read_journal(path()) : JournalContents{};
  if (!is_journal(kept.first_line)) {
    throw_error(ErrorKind::usage,
                "--out {}: ridgeline did not write the {} there: move it away, or choose another "
                "folder",
                folder_.string(), path().filename().string());
  }
  if (!kept.first_line.empty() && resume && kept.first_line != first_line()) {
    throw_error(ErrorKind::usage,
                "--resume: {} holds another sweep: give the config and the --set it was begun "
                "with, or begin anew with --force",
                folder_.string());
  }
  if (!kept.first_line.empty() && !resume) {
    const auto all = combinations_of(kept.first_line);
    // A damaged first line does not say how many there were.
    if (!force && (all ? kept.points.size() < *all : !kept.points.empty())) {
      throw_error(ErrorKind::usage,
                  "--out {}: holds a sweep of which {} of {} combinations are done: continue it "
                  "with --resume, replace it with --force, or choose another folder",
                  folder_.string(), kept.points.size(), all ? std::to_string(*all) : "some");
    }
    fs::remove(path());
    fs::remove_all(members(folder_));
  }
  open();
}

void SweepJournal::open() {
  file_ = ::open(path().c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (file_ < 0) throw_errno(ErrorKind::io, path(), "open");
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
    // Ends a truncated line, so that the next one is readable.
    char last = '\n';
    if (::pread(file_, &last, 1, size - 1) == 1 && last != '\n') begin = "\n";
  }
  write_all(file_, std::as_bytes(std::span(begin)), path());
}

SweepJournal::~SweepJournal() { ::close(file_); }

std::map<size_t, SweepPoint> SweepJournal::points() const {
  std::map<size_t, SweepPoint> all = read_journal(path()).points;
  std::erase_if(all, [&](const auto& each) { return each.first >= combinations_; });
  return all;
}

void SweepJournal::append(size_t combination, const SweepPoint& point) {
  nlohmann::json json = to_json(point);
  json["combination"] = combination;
  const std::string line = dump_json(json, -1) + "\n";
  write_all(file_, std::as_bytes(std::span(line)), path());
  ::fdatasync(file_);
}

}  // namespace ridgeline::engine
