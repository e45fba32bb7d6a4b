#include "ridgeline/data/source/npy_header.h"

#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <vector>

#include "ridgeline/core/text_format.h"

namespace ridgeline::data {
namespace {

constexpr size_t kMostHeader = 64 << 10;  // NumPy's own readers refuse more than 10,000 characters

// Parses the only form that a header may have.
class Literal {
 public:
  Literal(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  [[noreturn]] void refuse(std::string_view what) const {
    throw_error(ErrorKind::data, "{}: bad NumPy header: {} at character {} of {}", file_, what, at_,
                quote(text_));
  }
  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) refuse(fmt::format("no '{}'", c));
  }
  std::string_view string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') refuse("no string");
    const size_t begin = ++at_, end = text_.find(quote, begin);
    if (end == std::string_view::npos) refuse("a string without its end");
    at_ = end + 1;
    return text_.substr(begin, end - begin);
  }
  bool boolean() {
    peek();
    for (const bool value : {true, false}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return value;
      }
    }
    refuse("neither True nor False");
  }
  int64_t number() {
    peek();
    int64_t value = 0;
    const auto [end, error] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error == std::errc::result_out_of_range) refuse("a number beyond 64 bits");
    if (error != std::errc() || value < 0) refuse("no whole number");
    at_ = size_t(end - text_.data());
    take('L');  // Python 2 wrote 3L
    return value;
  }
  std::vector<int64_t> tuple() {
    std::vector<int64_t> values;
    expect('(');
    while (!take(')')) {
      values.push_back(number());
      if (!take(',')) {
        expect(')');
        break;
      }
    }
    return values;
  }
  bool ended() { return peek() == '\0' && at_ == text_.size(); }

 private:
  std::string_view text_;
  const std::string& file_;
  size_t at_ = 0;
};

[[noreturn]] void refuse_type(std::string_view descr, std::string_view what, std::string_view help,
                              const std::string& file) {
  throw_error(ErrorKind::data, "{}: holds {} (dtype {}), which are not read; {}", file, what,
              quote(descr), help);
}

void refuse_letter(char letter, std::string_view descr, const std::string& file) {
  switch (letter) {
    case 'O':
      throw_error(ErrorKind::data,
                  "{}: holds Python objects, which are pickled and can run code when they are "
                  "read, and is refused; save numbers or strings: np.save(file, "
                  "np.asarray(x, dtype=np.float32))",
                  file);
    case 'c':
      refuse_type(descr, "complex numbers", "save the real and the imaginary part", file);
    case 'M':
    case 'm':
      refuse_type(descr, "dates or times", "save them as numbers: x.astype(np.int64)", file);
    case 'V':
      refuse_type(descr, "raw records", "save each field as an array of its own", file);
    default:
      refuse_type(descr, "values of an unknown type", "save numbers or strings", file);
  }
}

// Parses '<f4', '|b1', '>i2', '=u8', '<U12', 'S5' and the like.
void parse_descr(std::string_view descr, NpyHeader& header, const std::string& file) {
  std::string_view text = descr;
  char order = '=';
  if (!text.empty() && std::string_view("<>=|").find(text[0]) != std::string_view::npos) {
    order = text[0];
    text.remove_prefix(1);
  }
  const char letter = text.empty() ? '\0' : text[0];
  if (std::string_view("biufSaU").find(letter) == std::string_view::npos || letter == '\0') {
    refuse_letter(letter, descr, file);
  }
  int64_t width = 0;
  const auto [end, error] = std::from_chars(text.data() + 1, text.data() + text.size(), width);
  if (error != std::errc() || end != text.data() + text.size() || width < 0) {
    refuse_type(descr, "values of an unknown type", "save numbers or strings", file);
  }
  StoredType& type = header.layout.type;
  type.swapped = order == (std::endian::native == std::endian::little ? '>' : '<');
  if (letter == 'S' || letter == 'a' || letter == 'U') {
    const bool wide = letter == 'U';
    if (width > (int64_t{1} << 20)) {
      throw_error(ErrorKind::data, "{}: states strings of {} characters; at most {} are read", file,
                  width, 1 << 20);
    }
    header.strings = wide ? NpyHeader::Strings::code_points : NpyHeader::Strings::bytes;
    header.string_width = wide ? 4 * width : width;
    return;
  }
  using Kind = StoredType::Kind;
  const bool whole = width == 1 || width == 2 || width == 4 || width == 8;
  if (letter == 'f' && whole && width > 1) {
    type.kind = Kind::real;
  } else if (letter == 'b' && width == 1) {
    type.kind = Kind::boolean;
  } else if ((letter == 'i' || letter == 'u') && whole) {
    type.kind = letter == 'i' ? Kind::signed_integer : Kind::unsigned_integer;
  } else {
    refuse_type(descr, "numbers of an unusual width", "save them as float64 or int64", file);
  }
  type.width = int(width);
}

// Returns the shape, refused before any multiplication can overflow.
Shape parse_shape(const std::vector<int64_t>& dims, const std::string& file) {
  if (dims.size() > size_t(Shape::kMaxRank)) {
    throw_error(ErrorKind::data, "{}: has {} dimensions; at most {} are read", file, dims.size(),
                Shape::kMaxRank);
  }
  if (dims.empty()) {
    throw_error(ErrorKind::data,
                "{}: holds a single number; an array whose first dimension counts samples is "
                "needed",
                file);
  }
  const std::string what = file + ": the product of its shape";
  int64_t product = 1;
  // A zero would hide an overflow of other factors.
  for (const int64_t extent : dims) {
    product = checked_mul(product, std::max<int64_t>(extent, 1), what.c_str());
  }
  return Shape(dims);
}

}  // namespace

NpyHeader parse_npy_literal(std::string_view literal, const std::string& file) {
  NpyHeader header;
  Literal in(literal, file);
  bool descr = false, order = false, shape = false;
  const auto once = [&](bool& seen, std::string_view key) {
    if (seen) in.refuse(fmt::format("the key {} is there twice,", quote(key)));
    seen = true;
  };
  in.expect('{');
  while (!in.take('}')) {
    const std::string_view key = in.string();
    in.expect(':');
    if (key == "descr") {
      once(descr, key);
      if (in.peek() == '[') {
        throw_error(ErrorKind::data,
                    "{}: holds records of several fields, which are not read; save each field as "
                    "an array of an .npz: np.savez(file, **{{n: x[n] for n in x.dtype.names}})",
                    file);
      }
      parse_descr(in.string(), header, file);
    } else if (key == "fortran_order") {
      once(order, key);
      header.layout.fortran = in.boolean();
    } else if (key == "shape") {
      once(shape, key);
      header.layout.shape = parse_shape(in.tuple(), file);
    } else {
      in.refuse(fmt::format("the unknown key {}", quote(key)));
    }
    if (!in.take(',')) {
      in.expect('}');
      break;
    }
  }
  if (!in.ended()) in.refuse("more after its end");
  if (!descr || !order || !shape) in.refuse("descr, fortran_order or shape is missing");
  return header;
}

int64_t NpyHeader::payload_bytes(const std::string& file) const {
  if (strings == Strings::none) return layout.bytes(file);
  return checked_mul(layout.shape.numel(), string_width, file.c_str());
}

NpyHeader read_npy_header(ByteStream& in) {
  const std::string& file = in.name();
  const auto read = [&](std::span<uint8_t> out) {
    if (in.read(std::as_writable_bytes(out)) == out.size()) return;
    throw_error(ErrorKind::data, "{}: truncated: ends inside the NumPy header; get it again", file);
  };
  std::array<uint8_t, 8> start{};
  read(start);
  if (std::memcmp(start.data(), kNpyMagic.data(), kNpyMagic.size()) != 0) {
    throw_error(ErrorKind::data, "{}: is not a NumPy array: it does not begin with \\x93NUMPY",
                file);
  }
  const int major = start[6];
  if (major < 1 || major > 3) {
    throw_error(ErrorKind::data, "{}: NumPy format version {}.{}; 1 to 3 are read", file, major,
                start[7]);
  }
  std::array<uint8_t, 4> length{};
  const size_t length_bytes = major == 1 ? 2 : 4;
  read(std::span(length).first(length_bytes));
  const size_t bytes = size_t{length[0]} | size_t{length[1]} << 8 | size_t{length[2]} << 16 |
                       size_t{length[3]} << 24;
  if (bytes > kMostHeader) {
    throw_error(ErrorKind::data, "{}: states a NumPy header of {} bytes; at most {} are read", file,
                bytes, kMostHeader);
  }
  std::vector<uint8_t> literal(bytes);
  read(literal);
  const std::string_view text(reinterpret_cast<const char*>(literal.data()), literal.size());
  NpyHeader header = parse_npy_literal(text, file);
  header.header_bytes = int64_t(start.size() + length_bytes + bytes);
  return header;
}

}  // namespace ridgeline::data
