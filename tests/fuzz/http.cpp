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

// Reads the next request from the front of `bytes`; false where the connection would be closed.
bool read_request(fuzz::Input& bytes, InferRequest& request) {
  http::request_parser<GrowingBody> parser;
  parser.header_limit(1 << 14);
  parser.body_limit(kMostBytes);
  parser.eager(true);
  while (!bytes.empty() && !parser.is_done()) {
    error_code error;
    const size_t used = parser.put(asio::buffer(bytes.data(), bytes.size()), error);
    bytes = bytes.subspan(used);
    if (error || used == 0) return false;
  }
  if (!parser.is_done() || refuse_header(parser).status != 0) return false;
  auto& message = parser.get();
  std::string body = message.body();
  try {
    const beast::string_view coding = message[http::field::content_encoding];
    if (coding == "gzip" || coding == "deflate") body = inflate_body(body, kMostBytes);
    static RequestParser requests(kMostBytes);
    requests.parse(body, number(message["Inference-Header-Content-Length"]), kInputs, kOutputs,
                   request);
    for (const InputTensor& each : request.inputs) {
      for (size_t i = 0; i + 1 < each.offsets.size(); ++i) each.text(i);
    }
  } catch (const HttpError& refusal) {
    fuzz::expect(refusal.status >= 400 && refusal.status < 500, refusal.what());
    fuzz::check_message(refusal.what());
  }
  return message.keep_alive();
}

}  // namespace

// Bytes of a connection: requests to infer as HTTP has them, of any encoding of their bodies.
FUZZ_TARGET(http) {
  InferRequest request;  // used again for each, as by a connection
  while (!input.empty() && read_request(input, request)) {
  }
}
