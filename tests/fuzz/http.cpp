#include <boost/asio/buffer.hpp>
#include <charconv>

#include "ridgeline/serve/connection.h"
#include "ridgeline/serve/http_error.h"
#include "ridgeline/serve/inflate.h"
#include "tests/fuzz/target.h"

using namespace ridgeline;
using namespace ridgeline::serve;

namespace {

const std::vector<TensorSpec> kInputs = {{"x", Datatype::fp32, {-1, 2}},
                                         {"pixels", Datatype::uint8, {-1, 2}},
                                         {"words", Datatype::bytes, {-1, 1}}};
const std::vector<TensorSpec> kOutputs = {{"probabilities", Datatype::fp32, {-1, 3}},
                                          {"label", Datatype::int64, {-1}}};
constexpr size_t kMostBytes = 1 << 16;

std::optional<size_t> number(beast::string_view text) {
  size_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && at == end ? std::optional(value) : std::nullopt;
}

}  // namespace

// The bytes of a connection: an inference request over HTTP, with any encoding of its body.
FUZZ_TARGET(http) {
  http::request_parser<GrowingBody> parser;
  parser.header_limit(1 << 14);
  parser.body_limit(kMostBytes);
  parser.eager(true);
  error_code error;
  size_t at = 0;
  while (at < input.size() && !parser.is_done()) {
    const size_t used = parser.put(asio::buffer(input.data() + at, input.size() - at), error);
    if (error && error != http::error::need_more) return;
    if (used == 0) break;
    at += used;
  }
  if (!parser.is_done()) return;
  auto& message = parser.get();
  std::string body = message.body();
  try {
    const beast::string_view coding = message[http::field::content_encoding];
    if (coding == "gzip" || coding == "deflate") body = inflate_body(body, kMostBytes);
    static RequestParser requests(kMostBytes);
    InferRequest request;
    requests.parse(body, number(message["Inference-Header-Content-Length"]), kInputs, kOutputs,
                   request);
    for (const InputTensor& each : request.inputs) {
      for (size_t i = 0; i + 1 < each.offsets.size(); ++i) each.text(i);
    }
  } catch (const HttpError& refusal) {
    fuzz::expect(refusal.status >= 400 && refusal.status < 500, refusal.what());
    fuzz::check_message(refusal.what());
  }
}
