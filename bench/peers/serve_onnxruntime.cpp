// A server as people write it by hand: a network of ONNX Runtime behind Boost.Beast, with one
// thread and preallocated tensors.
// usage: serve_onnxruntime LIBONNXRUNTIME.so MODEL.onnx PORT IN OUT
// POST / with IN floats as the body answers with OUT floats; with Content-Type: application/json
// the body is {"data": [...]}, and so is the answer. It is built by hand (see
// bench/serve_compare.py), because no package has the header:
//   g++ -O3 -std=c++20 -I ONNXRUNTIME/include bench/peers/serve_onnxruntime.cpp -ldl
//       -o serve_onnxruntime
#include <dlfcn.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cstring>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "onnxruntime_c_api.h"

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;

class Net {
 public:
  Net(const char* library, const char* model, int64_t in, int64_t out)
      : x(size_t(in)), y(size_t(out)) {
    void* handle = dlopen(library, RTLD_NOW);
    if (handle == nullptr) throw std::runtime_error(dlerror());
    const auto base = reinterpret_cast<const OrtApiBase* (*)()>(dlsym(handle, "OrtGetApiBase"));
    api_ = base()->GetApi(16);  // everything used here exists since that version
    check(api_->CreateEnv(ORT_LOGGING_LEVEL_ERROR, "peer", &env_));
    check(api_->CreateSessionOptions(&options_));
    check(api_->SetIntraOpNumThreads(options_, 1));
    check(api_->SetInterOpNumThreads(options_, 1));
    check(api_->CreateSession(env_, model, options_, &session_));
    OrtMemoryInfo* memory = nullptr;
    check(api_->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
    const int64_t shapes[2][2] = {{1, in}, {1, out}};
    check(api_->CreateTensorWithDataAsOrtValue(memory, x.data(), x.size() * 4, shapes[0], 2,
                                               ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &input_));
    check(api_->CreateTensorWithDataAsOrtValue(memory, y.data(), y.size() * 4, shapes[1], 2,
                                               ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &output_));
  }
  void run() {
    const char *in = "input", *out = "output";  // as `ridgeline export` names them
    const OrtValue* inputs[] = {input_};
    check(api_->Run(session_, nullptr, &in, inputs, 1, &out, 1, &output_));
  }
  std::vector<float> x, y;

 private:
  void check(OrtStatus* status) const {
    if (status != nullptr) throw std::runtime_error(api_->GetErrorMessage(status));
  }
  const OrtApi* api_ = nullptr;
  OrtEnv* env_ = nullptr;
  OrtSessionOptions* options_ = nullptr;
  OrtSession* session_ = nullptr;
  OrtValue *input_ = nullptr, *output_ = nullptr;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, Net& net) : stream_(std::move(socket)), net_(net) {
    stream_.socket().set_option(tcp::no_delay(true));
  }
  void read() {
    request_ = {};
    http::async_read(stream_, buffer_, request_, [self = shared_from_this()](auto error, size_t) {
      if (!error) self->answer();
    });
  }

 private:
  void answer() {
    const bool json = request_[http::field::content_type] == "application/json";
    response_ = {http::status::ok, request_.version()};
    response_.keep_alive(request_.keep_alive());
    try {
      if (json) {
        const auto data =
            nlohmann::json::parse(request_.body()).at("data").get<std::vector<float>>();
        if (data.size() != net_.x.size()) throw std::runtime_error("size");
        std::ranges::copy(data, net_.x.begin());  // the tensor is bound to this memory
      } else if (request_.body().size() == net_.x.size() * 4) {
        std::memcpy(net_.x.data(), request_.body().data(), request_.body().size());
      } else {
        throw std::runtime_error("size");
      }
      net_.run();
      if (json) {
        response_.body() = nlohmann::json{{"data", net_.y}}.dump();
      } else {
        response_.body().assign(reinterpret_cast<const char*>(net_.y.data()), net_.y.size() * 4);
      }
    } catch (const std::exception&) {
      response_.result(http::status::bad_request);
    }
    response_.prepare_payload();
    http::async_write(stream_, response_, [self = shared_from_this()](auto error, size_t) {
      if (!error && self->response_.keep_alive()) self->read();
    });
  }
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  http::request<http::string_body> request_;
  http::response<http::string_body> response_;
  Net& net_;
};

static void accept(tcp::acceptor& acceptor, Net& net) {
  acceptor.async_accept([&](auto error, tcp::socket socket) {
    if (!error) std::make_shared<Connection>(std::move(socket), net)->read();
    accept(acceptor, net);
  });
}

int main(int argc, char** argv) {
  if (argc != 6) return 64;
  Net net(argv[1], argv[2], std::stoll(argv[4]), std::stoll(argv[5]));
  asio::io_context context(1);
  tcp::acceptor acceptor(context, {asio::ip::address_v4::loopback(), uint16_t(std::stoi(argv[3]))});
  accept(acceptor, net);
  std::cerr << "ready\n";
  context.run();
}
