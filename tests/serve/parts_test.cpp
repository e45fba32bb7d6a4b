#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ridgeline/serve/http_error.h"
#include "ridgeline/serve/infer_response.h"
#include "ridgeline/serve/inflate.h"
#include "ridgeline/serve/metrics.h"
#include "ridgeline/serve/model_places.h"

namespace ridgeline::serve {
namespace {

using ::testing::HasSubstr;

TEST(ModelPlaces, NamesAreWhitelisted) {
  for (const char* good : {"net", "a.b", "A_1-2", "9"}) EXPECT_TRUE(is_model_name(good)) << good;
  for (const char* bad : {"", ".", "..", ".net", "a/b", "a b", "a\n", "\xc3\xa9", "a%2f"}) {
    EXPECT_FALSE(is_model_name(bad)) << bad;
  }
  EXPECT_FALSE(is_model_name(std::string(129, 'a')));
  for (const char* bad : {"", "01", "-1", "1a", "1234567890123456789"}) {
    EXPECT_FALSE(is_version(bad)) << bad;
  }
}

TEST(ModelPlaces, NamesComeFromPaths) {
  EXPECT_EQ(parse_place("runs/fashion.safetensors").name, "fashion");
  EXPECT_EQ(parse_place("runs/fashion/model.safetensors").name, "fashion");
  const ModelPlace place = parse_place("net:12=a=b");
  EXPECT_EQ(place.name + place.version + place.path.string(), "net12a=b");
  for (const char* bad : {"a b=x", "net:x=y", "net=", "=x"}) {
    EXPECT_THROW(parse_place(bad), Error) << bad;
  }
}

TEST(ModelPlaces, VersionsGoByNumber) {
  EXPECT_TRUE(version_less("9", "10"));
  EXPECT_FALSE(version_less("10", "9"));
}

TEST(Histogram, CountsUpToEachBound) {
  Histogram histogram(Histogram::samples());
  for (const double value : {1.0, 2.0, 3.0, 5000.0}) histogram.observe(value);
  std::string text;
  histogram.write("n", "m=\"x\"", text);
  EXPECT_THAT(text, HasSubstr("n_bucket{m=\"x\",le=\"1\"} 1\nn_bucket{m=\"x\",le=\"2\"} 2\n"
                              "n_bucket{m=\"x\",le=\"4\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("le=\"4096\"} 3\nn_bucket{m=\"x\",le=\"+Inf\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("n_sum{m=\"x\"} 5006\nn_count{m=\"x\"} 4\n"));
}

TEST(ErrorBody, IsOneLineOfJson) {
  EXPECT_EQ(error_body("a \"b\"\nc"), "{\"error\":\"a \\\"b\\\" c\"}\n");
}

TEST(Inflate, AcceptsWhatItIsTold) {
  for (const char* yes : {"gzip", "deflate, gzip;q=0.5", "br , gzip", "*", "gzip; q=1.0"}) {
    EXPECT_TRUE(accepts_gzip(yes)) << yes;
  }
  for (const char* no : {"", "identity", "gzip;q=0", "gzip; q=0.000", "xgzip", "br"}) {
    EXPECT_FALSE(accepts_gzip(no)) << no;
  }
}

TEST(Inflate, GivesBackWhatWasDeflated) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += std::to_string(i * i);
  const std::string packed = deflate_body(text);
  EXPECT_LT(packed.size(), text.size());
  EXPECT_EQ(inflate_body(packed, text.size()), text);
  EXPECT_EQ(inflate_body(deflate_body(""), 1), "");
}

TEST(Inflate, RefusesWhatIsNoGzip) {
  for (const std::string& bad : {std::string(), std::string("x"), std::string("\x1f\x8b\x08", 3)}) {
    EXPECT_THROW(inflate_body(bad, 100), HttpError);
  }
}

}  // namespace
}  // namespace ridgeline::serve
