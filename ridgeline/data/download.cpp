#include "ridgeline/data/download.h"

#include <curl/curl.h>
#include <fmt/ranges.h>

#include <array>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "ridgeline/core/error.h"
#include "ridgeline/core/shared_library.h"
#include "ridgeline/data/input_file.h"
#include "ridgeline/data/locate.h"
#include "ridgeline/data/part_file.h"
#include "ridgeline/data/sha256.h"

namespace ridgeline::data {
namespace fs = std::filesystem;
namespace {

constexpr long kConnectSeconds = 20;
constexpr long kMostRedirects = 5;

// libcurl brings thirty libraries along, which take milliseconds to load, and initialises TLS. Only
// a process that downloads loads it.
struct Curl {
  decltype(&curl_global_init) global_init;
  decltype(&curl_easy_init) easy_init;
  decltype(&curl_easy_setopt) easy_setopt;
  decltype(&curl_easy_perform) easy_perform;
  decltype(&curl_easy_getinfo) easy_getinfo;
  decltype(&curl_easy_strerror) easy_strerror;
  decltype(&curl_easy_cleanup) easy_cleanup;

  Curl() {
    SharedLibrary library("libcurl.so.4", {"libcurl.so.4", "libcurl-gnutls.so.4"});
    library.find(global_init, "curl_global_init");
    library.find(easy_init, "curl_easy_init");
    library.find(easy_setopt, "curl_easy_setopt");
    library.find(easy_perform, "curl_easy_perform");
    library.find(easy_getinfo, "curl_easy_getinfo");
    library.find(easy_strerror, "curl_easy_strerror");
    library.find(easy_cleanup, "curl_easy_cleanup");
    if (!library.refusal().empty()) throw_error(ErrorKind::io, "download: {}", library.refusal());
    global_init(CURL_GLOBAL_DEFAULT);
  }
};

const Curl& curl() {
  static const Curl library;
  return library;
}

using Handle = std::unique_ptr<CURL, decltype(&curl_easy_cleanup)>;

Handle make_handle() {
  Handle handle(curl().easy_init(), curl().easy_cleanup);
  if (!handle) throw_error(ErrorKind::io, "libcurl cannot start; is it installed whole?");
  return handle;
}

// The state of one transfer into a part for libcurl's callbacks. They run below C frames, so
// exceptions are kept and thrown later.
struct Transfer {
  PartFile& part;
  const FileInfo& file;
  const GetOptions& options;
  std::exception_ptr thrown;
  bool too_long = false;
  bool stopped = false;
};

size_t on_bytes(char* data, size_t, size_t count, void* context) {
  auto& transfer = *static_cast<Transfer*>(context);
  if (int64_t(count) > transfer.file.bytes - transfer.part.size()) {
    transfer.too_long = true;
    return CURL_WRITEFUNC_ERROR;
  }
  try {
    transfer.part.append(std::as_bytes(std::span(data, count)));
    return count;
  } catch (...) {
    transfer.thrown = std::current_exception();
    return CURL_WRITEFUNC_ERROR;
  }
}

int on_progress(void* context, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  auto& transfer = *static_cast<Transfer*>(context);
  if (!transfer.options.progress) return 0;
  try {
    const Progress now{transfer.file.name, transfer.part.size(), transfer.file.bytes};
    transfer.stopped = !transfer.options.progress(now);
  } catch (...) {
    transfer.thrown = std::current_exception();
  }
  return transfer.stopped || transfer.thrown ? 1 : 0;
}

void set_up(CURL* handle, const std::string& url, Transfer& transfer, char* message) {
  const auto set = curl().easy_setopt;
  set(handle, CURLOPT_URL, url.c_str());
  set(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  set(handle, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
  set(handle, CURLOPT_FOLLOWLOCATION, 1L);
  set(handle, CURLOPT_MAXREDIRS, kMostRedirects);
  set(handle, CURLOPT_FAILONERROR, 1L);
  set(handle, CURLOPT_NOSIGNAL, 1L);
  set(handle, CURLOPT_USERAGENT, "ridgeline");
  set(handle, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  set(handle, CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(handle, CURLOPT_LOW_SPEED_TIME, long{transfer.options.stall_seconds});
  set(handle, CURLOPT_ERRORBUFFER, message);
  set(handle, CURLOPT_RESUME_FROM_LARGE, curl_off_t{transfer.part.size()});
  set(handle, CURLOPT_WRITEFUNCTION, on_bytes);
  set(handle, CURLOPT_WRITEDATA, &transfer);
  set(handle, CURLOPT_NOPROGRESS, 0L);
  set(handle, CURLOPT_XFERINFOFUNCTION, on_progress);
  set(handle, CURLOPT_XFERINFODATA, &transfer);
}

struct Outcome {
  std::string failure;  // "" if the part is complete
  bool cannot_resume = false;
};

// Requests the missing bytes of the part. Throws only errors that no mirror causes: the disk, a
// stop.
Outcome fetch_rest(const std::string& url, PartFile& part, const FileInfo& file,
                   const GetOptions& options) {
  const Handle handle = make_handle();
  std::array<char, CURL_ERROR_SIZE> message{};
  Transfer transfer{part, file, options, nullptr};
  set_up(handle.get(), url, transfer, message.data());
  const CURLcode code = curl().easy_perform(handle.get());
  if (transfer.thrown) std::rethrow_exception(transfer.thrown);
  if (transfer.stopped) {
    throw_error(ErrorKind::data,
                "{}: stopped after {} of {} bytes; they are kept in {}, and the "
                "next get resumes there",
                file.name, part.size(), file.bytes, part.path().string());
  }
  long status = 0;
  curl().easy_getinfo(handle.get(), CURLINFO_RESPONSE_CODE, &status);
  if (transfer.too_long) {
    part.clear();  // it belongs to another file
    return {fmt::format("sends more than the {} bytes expected", file.bytes)};
  }
  if (code == CURLE_RANGE_ERROR || status == 416) return {"cannot resume", true};
  if (code == CURLE_HTTP_RETURNED_ERROR) {
    return {fmt::format("HTTP {}{}", status, status == 404 ? " (not found)" : "")};
  }
  if (code == CURLE_OK && part.size() == file.bytes) return {};
  if (code == CURLE_OK || code == CURLE_PARTIAL_FILE || code == CURLE_RECV_ERROR ||
      code == CURLE_GOT_NOTHING || code == CURLE_OPERATION_TIMEDOUT) {
    return {fmt::format("connection cut after {} of {} bytes", part.size(), file.bytes)};
  }
  return {message[0] != '\0' ? message.data() : curl().easy_strerror(code)};
}

// Returns "" if the file is complete and correct, else why this mirror failed.
std::string fetch_from(const std::string& url, const fs::path& target, const FileInfo& file,
                       const GetOptions& options) {
  PartFile part(target);
  if (part.size() > file.bytes) part.clear();
  while (true) {
    const bool resumed = part.size() > 0;
    if (part.size() < file.bytes) {
      const Outcome outcome = fetch_rest(url, part, file, options);
      if (outcome.cannot_resume && resumed) {
        part.clear();
        continue;
      }
      if (!outcome.failure.empty()) return outcome.failure;
    }
    InputFile whole(part.path());
    const std::string sum = sha256(whole);
    if (sum == file.sha256) {
      part.publish();
      return "";
    }
    part.clear();
    // The part of an earlier call may be damaged: try once more from the first byte.
    if (!resumed) {
      return fmt::format("wrong checksum (file removed): expected sha256 {}, got {}", file.sha256,
                         sum);
    }
  }
}

std::string kept_note(const fs::path& target) {
  const fs::path part = target.string() + ".part";
  std::error_code error;
  const auto kept = fs::file_size(part, error);
  if (error) return "";
  return fmt::format("; {} bytes are kept in {}, and the next get resumes there", kept,
                     part.string());
}

std::vector<std::string> base_urls(const SetInfo& set, const GetOptions& options) {
  std::string mirror = options.mirror;
  std::string_view origin = "--mirror";
  if (const char* value = std::getenv("RIDGELINE_MIRROR"); mirror.empty() && value != nullptr) {
    mirror = value;
    origin = "$RIDGELINE_MIRROR";
  }
  if (mirror.empty()) return set.mirrors;
  if (!mirror.starts_with("http://") && !mirror.starts_with("https://")) {
    throw_error(ErrorKind::usage, "{} '{}': give a URL that begins with http:// or https://",
                origin, mirror);
  }
  while (mirror.ends_with('/')) mirror.pop_back();
  return {mirror + "/" + set.name};
}

fs::path make_folder(const SetInfo& set, const fs::path& dest) {
  const fs::path parent = dest.empty() ? user_data_folder() : dest;
  if (parent.empty()) {
    throw_error(
        ErrorKind::usage,
        "no folder to download to: neither XDG_CACHE_HOME nor HOME is set; give --data DIR");
  }
  const fs::path folder = parent / set.name;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw_error(ErrorKind::io, "{}: cannot be made: {}", folder.string(), error.message());
  }
  return folder;
}

}  // namespace

fs::path get(const SetInfo& set, const fs::path& dest, const GetOptions& options) {
  const std::vector<std::string> bases = base_urls(set, options);
  const fs::path folder = make_folder(set, dest);
  const FolderLock lock(folder);
  for (const FileInfo& file : set.files) {
    const fs::path target = folder / file.name;
    const FileCheck there = check_file(file, folder);
    if (there.good()) continue;
    if (!there.path.empty()) {  // it may be the user's, and would be found before our download
      throw_error(ErrorKind::data, "{}: {}; remove it first", there.path.string(), there.note);
    }
    std::vector<std::string> failures;
    bool done = false;
    for (size_t i = 0; i < bases.size() && !done; ++i) {
      const std::string url = bases[i] + "/" + file.name;
      const std::string failure = fetch_from(url, target, file, options);
      done = failure.empty();
      if (!done) failures.push_back(url + ": " + failure);
    }
    if (done) continue;
    throw_error(ErrorKind::data,
                "{}: {} could not be downloaded: {}{}; set RIDGELINE_MIRROR to "
                "use another server",
                set.name, file.name, fmt::join(failures, "; "), kept_note(target));
  }
  return folder;
}

}  // namespace ridgeline::data
