#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridgeline/serve/background.h"
#include "ridgeline/serve/exchange.h"
#include "ridgeline/serve/repository.h"
#include "ridgeline/serve/tokens.h"

namespace ridgeline::serve {

// The state that a connection thread keeps between requests.
struct RouterState {
  RouterState(const ServeOptions& options, const Repository& repository, size_t thread)
      : parser(options.most_tensors), repository(repository), thread(thread) {
    refresh();
  }

  // Checks whether models have changed.
  void refresh();
  // Keeps a submitted job for compute().
  void add_due(Exchange& exchange) noexcept;
  // Computes the jobs that were submitted for this thread.
  void compute();

  RequestParser parser;
  const Repository& repository;
  std::shared_ptr<const ModelTable> table;
  uint64_t generation = 0;
  size_t thread;  // its number
  struct Due {
    std::shared_ptr<const ServedModel> model;
    std::vector<Job*> jobs;
  };
  std::vector<Due> due;  // jobs for compute()
  bool queued = false;   // the last request waits for an engine's thread
  std::shared_ptr<const Tokens> tokens;
  uint64_t tokens_generation = 0;
};

// Handles each method and path: health, metadata, inference, the repository, metrics, the page.
class Router {
 public:
  Router(const ServeOptions& options, Repository& repository, Metrics& metrics,
         Background& background);

  // Answers, and returns true; or arranges that exchange.computed() or answered() is called, and
  // returns false. If state.due is then not empty, state.compute() must be called soon.
  bool handle(Exchange& exchange, RouterState& state);
  // Writes the response of a request whose samples are computed.
  void complete(Exchange& exchange);

  // Writes a response with the error's sentence. Connections use it too, for a request that is not
  // HTTP.
  static void answer_error(Exchange& exchange, int status, std::string_view message) noexcept;

  void set_ready(bool ready) { ready_.store(ready); }
  void set_tokens(Tokens tokens) {
    const std::scoped_lock lock(tokens_mutex_);
    tokens_ = std::make_shared<const Tokens>(std::move(tokens));
    tokens_generation_.fetch_add(1, std::memory_order_release);
  }

 private:
  using Path = std::span<const std::string_view>;
  bool route(Exchange& exchange, RouterState& state);
  bool route_models(Exchange& exchange, RouterState& state, Path path);
  bool route_repository(Exchange& exchange, Path path);
  bool start_infer(Exchange& exchange, RouterState& state);
  void check_allowed(const Exchange& exchange, RouterState& state, Path path) const;
  void describe_server(Exchange& exchange) const;
  void health(Exchange& exchange, Path path) const;

  const ServeOptions& options_;
  Repository& repository_;
  Metrics& metrics_;
  Background& background_;
  std::atomic<bool> ready_{false};
  // Connection threads have their own copies, and check here when the number has changed.
  std::atomic<uint64_t> tokens_generation_{1};
  mutable std::mutex tokens_mutex_;
  std::shared_ptr<const Tokens> tokens_;
};

}  // namespace ridgeline::serve
