// Bounds of normalisations: the formulas of the ops in numbers that carry their own bounds.
#include "tests/support/bounds_rules.h"

namespace ridgeline::test {
namespace {

// A sum in any order.
class Sum {
 public:
  explicit Sum(double u) : u_(u) {}
  void add(const Approx& term) {
    value_ += term.value;
    size_ += std::abs(term.value) + term.error;
    spread_ += term.error;
    ++count_;
  }
  Approx total() const { return {value_, spread_ + count_ * u_ * size_, u_}; }

 private:
  double u_, value_ = 0, size_ = 0, spread_ = 0, count_ = 0;
};

Approx exact(double value, double u) { return {value, u * std::abs(value), u}; }

struct Moments {
  Approx mean, var;
};

// The moments of at(0), ..., at(count - 1), with squares of distances from the mean.
template <typename At>
Moments moments(int64_t count, double u, At at) {
  const Approx size{double(count), 0, u};
  Sum sum(u), squares(u);
  for (int64_t j = 0; j < count; ++j) sum.add(at(j));
  const Approx mean = sum.total() / size;
  for (int64_t j = 0; j < count; ++j) {
    const Approx off = at(j) - mean;
    squares.add(off * off);
  }
  return {mean, squares.total() / size};
}

Approx reciprocal_root(const Approx& var, double epsilon) {
  return Approx{1, 0, var.u} / sqrt(var + exact(epsilon, var.u));
}

int64_t place(const Image& in, int64_t c, int64_t j) {
  return (j / in.pixels() * in.c + c) * in.pixels() + j % in.pixels();
}

}  // namespace

void Rules::operator()(const LayerNorm& op) const {
  for (int64_t r = 0; r < op.rows(); ++r) {
    const auto x = [&](int64_t j) { return element(op.x, r * op.width + j); };
    const Moments m = moments(op.width, u(op.x), x);
    const Approx rstd = reciprocal_root(m.var, op.epsilon);
    for (int64_t j = 0; j < op.width; ++j) {
      Approx y = (x(j) - m.mean) * rstd;
      if (op.gamma) y = y * element(op.gamma, j);
      if (op.beta) y = y + element(op.beta, j);
      store(op.y, r * op.width + j, y);
    }
    if (op.mean) store(op.mean, r, m.mean);
    if (op.rstd) store(op.rstd, r, rstd);
  }
}

void Rules::operator()(const LayerNormGrad& op) const {
  const int64_t width = op.width;
  const double u = this->u(op.x);
  const Approx size{double(width), 0, u};
  const auto unit = [&](int64_t r, int64_t j) {
    return (element(op.x, r * width + j) - element(op.mean, r)) * element(op.rstd, r);
  };
  for (int64_t r = 0; op.dx && r < op.rows(); ++r) {
    const auto grad = [&](int64_t j) {
      const Approx dy = element(op.dy, r * width + j);
      return op.gamma ? dy * element(op.gamma, j) : dy;
    };
    Sum sum(u), along(u);
    for (int64_t j = 0; j < width; ++j) {
      sum.add(grad(j));
      along.add(grad(j) * unit(r, j));
    }
    for (int64_t j = 0; j < width; ++j) {
      const Approx rest = grad(j) - sum.total() / size - unit(r, j) * (along.total() / size);
      store(op.dx, r * width + j, element(op.rstd, r) * rest);
    }
  }
  for (int64_t j = 0; j < width; ++j) {
    Sum sum(u), along(u);
    for (int64_t r = 0; r < op.rows(); ++r) {
      sum.add(element(op.dy, r * width + j));
      along.add(element(op.dy, r * width + j) * unit(r, j));
    }
    if (op.dbeta) store(op.dbeta, j, sum.total());
    if (op.dgamma) store(op.dgamma, j, along.total());
  }
}

void Rules::operator()(const GroupNorm& op) const {
  const double u = this->u(op.x);
  for (int64_t r = 0; r < op.runs(); ++r) {
    const auto x = [&](int64_t j) { return element(op.x, r * op.width + j); };
    Moments m;
    if (op.centred) {
      m = moments(op.width, u, x);
    } else {
      Sum squares(u);
      for (int64_t j = 0; j < op.width; ++j) squares.add(x(j) * x(j));
      m = {{0, 0, u}, squares.total() / Approx{double(op.width), 0, u}};
    }
    const Approx rstd = reciprocal_root(m.var, op.epsilon);
    for (int64_t j = 0; j < op.width; ++j) {
      const int64_t c = (r % op.groups * op.width + j) / op.spatial;
      Approx y = (x(j) - m.mean) * rstd;
      if (op.gamma) y = y * element(op.gamma, c);
      if (op.beta) y = y + element(op.beta, c);
      store(op.y, r * op.width + j, y);
    }
    if (op.mean) store(op.mean, r, m.mean);
    if (op.rstd) store(op.rstd, r, rstd);
  }
}

void Rules::operator()(const GroupNormGrad& op) const {
  const int64_t width = op.width;
  const double u = this->u(op.x);
  const Approx size{double(width), 0, u};
  const auto channel = [&](int64_t r, int64_t j) {
    return (r % op.groups * width + j) / op.spatial;
  };
  const auto unit = [&](int64_t r, int64_t j) {
    const Approx x = element(op.x, r * width + j), rstd = element(op.rstd, r);
    return op.mean ? (x - element(op.mean, r)) * rstd : x * rstd;
  };
  std::vector<Sum> sums(size_t(op.channels()), Sum(u)), alongs(size_t(op.channels()), Sum(u));
  for (int64_t r = 0; r < op.runs(); ++r) {
    const auto grad = [&](int64_t j) {
      const Approx dy = element(op.dy, r * width + j);
      return op.gamma ? dy * element(op.gamma, channel(r, j)) : dy;
    };
    Sum sum(u), along(u);
    for (int64_t j = 0; j < width; ++j) {
      if (op.centred) sum.add(grad(j));
      along.add(grad(j) * unit(r, j));
      sums[size_t(channel(r, j))].add(element(op.dy, r * width + j));
      alongs[size_t(channel(r, j))].add(element(op.dy, r * width + j) * unit(r, j));
    }
    for (int64_t j = 0; op.dx && j < width; ++j) {
      const Approx rest = grad(j) - sum.total() / size - unit(r, j) * (along.total() / size);
      store(op.dx, r * width + j, element(op.rstd, r) * rest);
    }
  }
  for (int64_t c = 0; c < op.channels(); ++c) {
    if (op.dbeta) store(op.dbeta, c, sums[size_t(c)].total());
    if (op.dgamma) store(op.dgamma, c, alongs[size_t(c)].total());
  }
}

// Computed before the op, which changes the running statistics.
void Rules::operator()(const BatchNorm& op) const {
  const double u = this->u(op.x), count = double(op.count());
  for (int64_t c = 0; c < op.in.c; ++c) {
    const auto x = [&](int64_t j) { return element(op.x, place(op.in, c, j)); };
    const Moments m = moments(op.count(), u, x);
    const Approx rstd = reciprocal_root(m.var, op.epsilon);
    for (int64_t j = 0; j < op.count(); ++j) {
      Approx y = (x(j) - m.mean) * rstd;
      if (op.gamma) y = y * element(op.gamma, c) + element(op.beta, c);
      store(op.y, place(op.in, c, j), y);
    }
    store(op.mean, c, m.mean);
    store(op.rstd, c, rstd);
    const Approx keep = exact(op.momentum, u), unbiased = m.var * exact(count / (count - 1), u);
    const auto moved = [&](const Value& running, const Approx& to) {
      const Approx from = element(running, c);
      store(running, c, from + keep * (to - from));
    };
    moved(op.running_mean, m.mean);
    moved(op.running_var, unbiased);
  }
}

void Rules::operator()(const BatchNormGrad& op) const {
  const double u = this->u(op.x);
  const Approx size{double(op.count()), 0, u};
  for (int64_t c = 0; c < op.in.c; ++c) {
    const auto dy = [&](int64_t j) { return element(op.dy, place(op.in, c, j)); };
    const auto unit = [&](int64_t j) {
      return (element(op.x, place(op.in, c, j)) - element(op.mean, c)) * element(op.rstd, c);
    };
    Sum sum(u), along(u);
    for (int64_t j = 0; j < op.count(); ++j) {
      sum.add(dy(j));
      along.add(dy(j) * unit(j));
    }
    if (op.dbeta) store(op.dbeta, c, sum.total());
    if (op.dgamma) store(op.dgamma, c, along.total());
    for (int64_t j = 0; op.dx && j < op.count(); ++j) {
      const Approx rest = dy(j) - sum.total() / size - unit(j) * (along.total() / size);
      const Approx scale =
          op.gamma ? element(op.rstd, c) * element(op.gamma, c) : element(op.rstd, c);
      store(op.dx, place(op.in, c, j), scale * rest);
    }
  }
}

void Rules::operator()(const BatchNormInfer& op) const {
  const double u = this->u(op.x);
  for (int64_t at = 0; at < op.x.shape.numel(); ++at) {
    const int64_t c = at / op.in.pixels() % op.in.c;
    Approx var = element(op.var, c);
    var.u = u;
    const Approx rstd = reciprocal_root(var, op.epsilon);
    // A kernel may fold mean and beta into one number: x * s + (beta - mean * s).
    Approx scale = op.gamma ? rstd * element(op.gamma, c) : rstd;
    Approx y = element(op.x, at) * scale - element(op.mean, c) * scale;
    if (op.beta) y = y + element(op.beta, c);
    store(op.y, at, y);
  }
}

}  // namespace ridgeline::test
