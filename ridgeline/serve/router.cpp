#include "ridgeline/serve/router.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "ridgeline/core/failure.h"
#include "ridgeline/core/file.h"
#include "ridgeline/core/json.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/engine/info.h"
#include "ridgeline/serve/embedded.h"
#include "ridgeline/serve/http_error.h"
#include "ridgeline/serve/infer_response.h"
#include "ridgeline/serve/inflate.h"

namespace ridgeline::serve {
namespace {

constexpr std::string_view kJson = "application/json";

void answer(Exchange& exchange, std::string_view type, std::string reply) {
  exchange.status = 200;
  exchange.content_type = type;
  exchange.reply = std::move(reply);
}

void want_method(const Exchange& exchange, std::string_view method) {
  const bool get = method == "GET" && exchange.method == "HEAD";
  if (exchange.method == method || get) return;
  throw HttpError(
      405, fmt::format("{} is not for this path; use {}", printable(exchange.method), method),
      fmt::format("Allow: {}{}\r\n", method, method == "GET" ? ", HEAD" : ""));
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, {}, [](unsigned char c) { return std::tolower(c); },
      [](unsigned char c) { return std::tolower(c); });
}

[[noreturn]] void not_found(const Exchange& exchange) {
  refuse(404, "there is nothing at {}; /openapi.json describes what there is",
         quote(exchange.target));
}

std::optional<size_t> parse_length(std::string_view text) {
  if (text.empty()) return std::nullopt;
  size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    refuse(400, "Inference-Header-Content-Length: {} is no number of bytes", quote(text));
  }
  return value;
}

int status_of(ErrorKind kind) {
  // The request, or the file it names, caused the error; otherwise the server did.
  const bool theirs =
      kind == ErrorKind::usage || kind == ErrorKind::data || kind == ErrorKind::model;
  return theirs ? 400 : 500;
}

}  // namespace

void RouterState::refresh() {
  const uint64_t now = repository.generation();
  if (now == generation) return;
  table = repository.table();
  generation = now;
}

void RouterState::add_due(Exchange& exchange) noexcept {
  Job* job = &exchange;
  try {
    const auto of_model = std::ranges::find(due, exchange.model.get(),
                                            [](const Due& each) { return each.model.get(); });
    if (of_model != due.end()) {
      of_model->jobs.push_back(job);
    } else {
      due.push_back({exchange.model, {job}});
    }
  } catch (const std::exception&) {  // without memory for the list, it is computed alone
    const std::shared_ptr<const ServedModel> model = exchange.model;
    model->batcher().compute({&job, 1}, thread);
  }
}

void RouterState::compute() {
  // Answers may bring new requests of the same connections, which are appended to the list.
  for (size_t i = 0; i < due.size(); ++i) {
    Due each = std::move(due[i]);
    each.model->batcher().compute(each.jobs, thread);
  }
  due.clear();
}

Router::Router(const ServeOptions& options, Repository& repository, Metrics& metrics,
               Background& background)
    : options_(options),
      repository_(repository),
      metrics_(metrics),
      background_(background),
      tokens_(std::make_shared<const Tokens>()) {}

void Router::answer_error(Exchange& exchange, int status, std::string_view message) noexcept {
  exchange.status = status;
  exchange.content_type = kJson;
  exchange.headers.clear();
  exchange.reply.clear();
  try {
    if (status == 401) exchange.headers = "WWW-Authenticate: Bearer\r\n";
    if (status == 503) exchange.headers = "Retry-After: 1\r\n";
    exchange.reply = error_body(message);
  } catch (const std::exception&) {  // memory is short: the status has to do
  }
}

bool Router::handle(Exchange& exchange, RouterState& state) {
  exchange.model.reset();
  exchange.headers.clear();
  exchange.count = 0;
  try {
    return route(exchange, state);
  } catch (const HttpError& error) {
    answer_error(exchange, error.status, error.what());
    exchange.headers += error.headers;
  } catch (const std::bad_alloc&) {
    answer_error(exchange, 503, "out of memory");
  } catch (const std::exception& error) {
    answer_error(exchange, 500, failure_of(error).message);
  }
  if (exchange.model) {
    ModelMetrics& metrics = exchange.model->metrics();
    const int status = exchange.status;
    (status == 503  ? metrics.turned_away
     : status < 500 ? metrics.refused
                    : metrics.failed)
        .fetch_add(1, std::memory_order_relaxed);
  }
  return true;
}

bool Router::route(Exchange& exchange, RouterState& state) {
  std::string_view target = exchange.target;
  if (target.empty() || target.front() != '/') not_found(exchange);
  target = target.substr(1, target.find('?') == target.npos ? target.npos : target.find('?') - 1);
  std::array<std::string_view, 8> parts;
  size_t count = 0;
  while (!target.empty()) {
    if (count == parts.size()) not_found(exchange);
    const size_t slash = std::min(target.find('/'), target.size());
    parts[count++] = target.substr(0, slash);
    target.remove_prefix(std::min(slash + 1, target.size()));
  }
  const Path path = std::span(parts).first(count);
  check_allowed(exchange, state, path);
  if (count >= 3 && parts[0] == "v2" && parts[1] == "models") {
    return route_models(exchange, state, path.subspan(2));
  }
  if (count >= 3 && parts[0] == "v2" && parts[1] == "repository") {
    return route_repository(exchange, path.subspan(2));
  }
  want_method(exchange, "GET");
  if (count == 0) {
    answer(exchange, "text/html; charset=utf-8", std::string(kPage));
    // The page is self-contained and connects only to this server.
    exchange.headers =
        "Content-Security-Policy: default-src 'self' 'unsafe-inline'; frame-ancestors 'none'\r\n";
  } else if (count == 1 && parts[0] == "v2") {
    describe_server(exchange);
  } else if (count == 3 && parts[0] == "v2" && parts[1] == "health") {
    health(exchange, path.subspan(2));
  } else if (count == 1 && parts[0] == "metrics") {
    answer(exchange, "text/plain; version=0.0.4; charset=utf-8", metrics_.to_text());
  } else if (count == 1 && parts[0] == "openapi.json") {
    answer(exchange, kJson, std::string(kOpenApi));
  } else {
    not_found(exchange);
  }
  return true;
}

// Probes and the page need no token: they reveal nothing about the models.
void Router::check_allowed(const Exchange& exchange, RouterState& state, Path path) const {
  const bool open = path.empty() || (path.size() == 3 && path[1] == "health") ||
                    (path.size() == 1 && path[0] == "openapi.json");
  if (!open) {
    if (const uint64_t now = tokens_generation_.load(std::memory_order_acquire);
        now != state.tokens_generation) {
      const std::scoped_lock lock(tokens_mutex_);
      state.tokens = tokens_;
      state.tokens_generation = now;
    }
    if (state.tokens->wanted() && !state.tokens->accept(exchange.authorization)) {
      refuse(401, "this server wants a token: send the header Authorization: Bearer TOKEN");
    }
  }
  // A page of another site in a browser on this machine must not reach the server.
  if (exchange.method == "POST" && !exchange.origin.empty()) {
    const std::string_view origin = exchange.origin;
    const size_t scheme = origin.find("://");
    if (scheme == origin.npos || origin.substr(scheme + 3) != exchange.host) {
      refuse(403, "requests of pages from {} are not answered", quote(origin));
    }
  }
}

void Router::describe_server(Exchange& exchange) const {
  const nlohmann::json document{
      {"name", "ridgeline"},
      {"version", engine::version()},
      {"extensions", {"binary_tensor_data", "model_repository", "schedule_policy"}}};
  answer(exchange, kJson, dump_json(document, -1) + "\n");
}

void Router::health(Exchange& exchange, Path path) const {
  if (path[0] == "live") return answer(exchange, kJson, "{\"live\":true}\n");
  if (path[0] != "ready") not_found(exchange);
  if (!ready_.load()) refuse(503, "models are being loaded, or the server is about to end");
  answer(exchange, kJson, "{\"ready\":true}\n");
}

// NAME[/versions/V][/ready|/infer]
bool Router::route_models(Exchange& exchange, RouterState& state, Path path) {
  state.refresh();
  const std::string_view name = path[0];
  std::string_view version;
  path = path.subspan(1);
  if (path.size() >= 2 && path[0] == "versions") {
    version = path[1];
    path = path.subspan(2);
  }
  const std::string_view action = path.empty() ? "" : path[0];
  if (path.size() > 1 || (action != "" && action != "ready" && action != "infer")) {
    not_found(exchange);
  }
  want_method(exchange, action == "infer" ? "POST" : "GET");
  const auto* found = state.table->find(name, version);
  if (found == nullptr) {
    const bool known = !version.empty() && state.table->find(name, {}) != nullptr;
    if (!known && repository_.is_loading(name)) {
      refuse(503, "the model {} is being loaded; try again", quote(name));
    }
    refuse(404, "there is no {} {}; POST /v2/repository/index lists what there is",
           known ? "version" : "model", quote(known ? version : name));
  }
  if (action == "infer") {
    exchange.model = *found;
    return start_infer(exchange, state);
  }
  if (action == "ready") {
    answer(exchange, kJson, fmt::format("{{\"name\":\"{}\",\"ready\":true}}\n", (*found)->name()));
  } else {
    answer(exchange, kJson, (*found)->metadata(state.table->versions(name)));
  }
  return true;
}

bool Router::start_infer(Exchange& exchange, RouterState& state) {
  const ServedModel& model = *exchange.model;
  const auto is_encoded = [&](auto... names) {
    return (equal_ignoring_case(exchange.content_encoding, names) || ...);
  };
  if (!is_encoded("", "identity")) {
    if (!is_encoded("gzip", "x-gzip", "deflate")) {
      refuse(415, "Content-Encoding: {} is not known; use gzip or deflate",
             quote(exchange.content_encoding));
    }
    exchange.body = inflate_body(exchange.body, options_.most_body);
  }
  state.parser.parse(exchange.body, parse_length(exchange.header_length), model.inputs().accepted(),
                     model.outputs().declared(), exchange.infer);
  exchange.count = model.inputs().prepare(exchange.infer, options_.most_tensors, exchange.samples);
  const size_t most = options_.most_tensors / (size_t(model.outputs().width()) * sizeof(float));
  if (size_t(exchange.count) > most) {
    refuse(413, "at most {} samples fit into one request: their outputs are larger than its inputs",
           most);
  }
  const QueueWishes& wishes = exchange.infer.queue;
  exchange.priority = wishes.priority == 0 ? Priority::normal : Priority(wishes.priority - 1);
  exchange.deadline = wishes.timeout == 0
                          ? Clock::time_point::max()
                          : exchange.received + std::chrono::microseconds(wishes.timeout);
  // From here on other threads may answer it.
  switch (model.batcher().submit(exchange)) {
    case Batcher::Accepted::no:
      refuse(503, "the queue of {} is full; try again later", model.name());
    case Batcher::Accepted::queued:
      state.queued = true;
      break;
    case Batcher::Accepted::by_caller:
      state.add_due(exchange);
      break;
  }
  return false;
}

void Router::complete(Exchange& exchange) {
  const ServedModel& model = *exchange.model;
  ModelMetrics& metrics = model.metrics();
  if (!exchange.error.empty()) {
    if (!exchange.overloaded) metrics.failed.fetch_add(1, std::memory_order_relaxed);
    return answer_error(exchange, exchange.overloaded ? 503 : 500, exchange.error);
  }
  model.outputs().restore(exchange.outputs);
  const size_t json = write_response(model.outputs(), model.name(), model.version(), exchange.infer,
                                     exchange.count, exchange.outputs, exchange.reply);
  exchange.status = 200;
  exchange.content_type = kJson;
  if (json > 0) {
    exchange.content_type = "application/octet-stream";
    exchange.headers = fmt::format("Inference-Header-Content-Length: {}\r\n", json);
  }
  metrics.good.fetch_add(1, std::memory_order_relaxed);
  metrics.request_seconds.observe(seconds(Clock::now() - exchange.received));
}

// index | models/NAME/load | models/NAME/unload
bool Router::route_repository(Exchange& exchange, Path path) {
  if (path.size() == 1 && path[0] == "index") {
    if (exchange.method != "POST" && exchange.method != "GET" && exchange.method != "HEAD") {
      throw HttpError(405,
                      fmt::format("{} is not for this path; use POST", printable(exchange.method)),
                      "Allow: GET, HEAD, POST\r\n");
    }
    bool ready_only = false;
    if (!exchange.body.empty()) {
      const nlohmann::json body = parse_json(exchange.body);
      if (!body.is_object()) refuse(400, "the body must be a JSON object");
      if (const auto ready = body.find("ready"); ready != body.end()) {
        if (!ready->is_boolean()) refuse(400, "ready: must be true or false");
        ready_only = *ready;
      }
    }
    answer(exchange, kJson, repository_.index(ready_only));
    return true;
  }
  if (path.size() != 3 || path[0] != "models" || (path[2] != "load" && path[2] != "unload")) {
    not_found(exchange);
  }
  want_method(exchange, "POST");
  if (!is_model_name(path[1])) refuse(400, "{} cannot be the name of a model", quote(path[1]));
  const bool loads = path[2] == "load";
  const bool added = background_.add([this, &exchange, loads, name = std::string(path[1])] {
    try {
      loads ? repository_.load(name) : repository_.unload(name);
      answer(exchange, kJson, "{}\n");
      write_stderr(fmt::format("ridgeline: {} {}\n", loads ? "loaded" : "unloaded", name));
    } catch (const Error& error) {
      answer_error(exchange, status_of(error.kind()), error.what());
    } catch (const std::exception& error) {
      answer_error(exchange, 500, failure_of(error).message);
    }
    exchange.answered();
    repository_.drop_retired();
  });
  if (!added) refuse(503, "too many models wait to be loaded; try again later");
  return false;
}

}  // namespace ridgeline::serve
