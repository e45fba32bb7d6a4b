#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridgeline/serve/background.h"
#include "ridgeline/serve/exchange.h"
#include "ridgeline/serve/repository.h"
#include "ridgeline/serve/tokens.h"

namespace ridgeline::serve {

// What one thread of connections keeps from request to request.
struct RouterState {
  RouterState(const ServeOptions& options, const Repository& repository)
      : parser(options.most_tensors), repository(repository) {
    refresh();
  }

  // Looks whether models have changed.
  void refresh();
  // Computes what this thread has submitted and promised to compute.
  void help();

  RequestParser parser;
  const Repository& repository;
  std::shared_ptr<const ModelTable> table;
  uint64_t generation = 0;
  std::vector<std::shared_ptr<const ServedModel>> to_help;  // whose help() is due
};

// Knows what each method and path does: health, metadata, infer, the repository, metrics, the page.
class Router {
 public:
  Router(const ServeOptions& options, Repository& repository, Metrics& metrics,
         Background& background);

  // Answers, and returns true; or sees to it that exchange.computed() or answered() is called, and
  // returns false. If state.to_help is not empty afterwards, state.help() must be called soon.
  bool handle(Exchange& exchange, RouterState& state);
  // Writes the response of a request whose samples are computed.
  void complete(Exchange& exchange);

  // A response with the error's sentence. For connections too: a request that is no HTTP.
  static void answer_error(Exchange& exchange, int status, std::string_view message);

  void set_ready(bool ready) { ready_.store(ready); }
  void set_tokens(Tokens tokens) {
    tokens_.store(std::make_shared<const Tokens>(std::move(tokens)));
  }

 private:
  using Path = std::span<const std::string_view>;
  bool route(Exchange& exchange, RouterState& state);
  bool route_models(Exchange& exchange, RouterState& state, Path path);
  bool route_repository(Exchange& exchange, Path path);
  bool start_infer(Exchange& exchange, RouterState& state);
  void check_allowed(const Exchange& exchange, Path path) const;
  void describe_server(Exchange& exchange) const;
  void health(Exchange& exchange, Path path) const;

  const ServeOptions& options_;
  Repository& repository_;
  Metrics& metrics_;
  Background& background_;
  std::atomic<bool> ready_{false};
  std::atomic<std::shared_ptr<const Tokens>> tokens_;
};

}  // namespace ridgeline::serve
