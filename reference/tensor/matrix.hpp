// Dense row-major matrices over any scalar, and the few products that the operators are written with. They are
// evaluated at once and entry by entry: with exact and interval scalars an expression template saves nothing and
// costs a minute of compilation per operator. Number crunching in double uses Eigen (reference/metrics).
#pragma once
#include <concepts>
#include <cstdint>
#include <utility>
#include <vector>

namespace attest {

using Index = std::int64_t;

// Eigen's types bring operators of their own and stay out.
template <class M>
concept MatrixLike = !requires {
  typename M::PlainObject;
}
&&requires(const M& m) {
  typename M::Scalar;
  { m.rows() } -> std::same_as<Index>;
  { m.cols() } -> std::same_as<Index>;
  m(Index(0), Index(0));
};

// One row of a matrix, (1, columns): readable as a matrix, writable when T is not const.
template <class T>
class Row {
 public:
  using Scalar = std::remove_const_t<T>;
  Row(T* data, Index columns) : data_(data), columns_(columns) {}
  Row(const Row&) = default;
  Index rows() const { return 1; }
  Index cols() const { return columns_; }
  T& operator()(Index, Index j) const { return data_[j]; }
  Row& operator=(const Row& other) { return this == &other ? *this : assign(other); }
  template <MatrixLike M>
  Row& operator=(const M& other) {
    return assign(other);
  }
  template <MatrixLike M>
  Row& operator+=(const M& other) {
    for (Index j = 0; j < columns_; ++j) data_[j] += other(0, j);
    return *this;
  }
  Row& operator*=(const Scalar& factor) {
    for (Index j = 0; j < columns_; ++j) data_[j] *= factor;
    return *this;
  }

 private:
  template <class M>
  Row& assign(const M& other) {
    for (Index j = 0; j < columns_; ++j) data_[j] = other(0, j);
    return *this;
  }
  T* data_;
  Index columns_;
};

template <class S>
class Matrix {
 public:
  using Scalar = S;
  Matrix() = default;
  Matrix(Index rows, Index columns)
      : rows_(rows), columns_(columns), data_(static_cast<std::size_t>(rows * columns), S(0)) {}
  template <class T>
  Matrix(const Row<T>& row) : Matrix(1, row.cols()) {
    this->row(0) = row;
  }

  Index rows() const { return rows_; }
  Index cols() const { return columns_; }
  Index size() const { return rows_ * columns_; }
  S* data() { return data_.data(); }
  const S* data() const { return data_.data(); }
  S& operator()(Index i, Index j) { return data_[static_cast<std::size_t>(i * columns_ + j)]; }
  const S& operator()(Index i, Index j) const { return data_[static_cast<std::size_t>(i * columns_ + j)]; }

  Row<S> row(Index i) { return {data() + i * columns_, columns_}; }
  Row<const S> row(Index i) const { return {data() + i * columns_, columns_}; }
  Matrix middle_rows(Index first, Index count) const {
    Matrix result(count, columns_);
    for (Index i = 0; i < count * columns_; ++i) result.data()[i] = data()[first * columns_ + i];
    return result;
  }
  void set_rows(Index first, const Matrix& rows) {
    for (Index i = 0; i < rows.size(); ++i) data()[first * columns_ + i] = rows.data()[i];
  }
  Matrix middle_columns(Index first, Index count) const {
    Matrix result(rows_, count);
    for (Index i = 0; i < rows_; ++i)
      for (Index j = 0; j < count; ++j) result(i, j) = (*this)(i, first + j);
    return result;
  }
  Matrix transpose() const {
    Matrix result(columns_, rows_);
    for (Index i = 0; i < rows_; ++i)
      for (Index j = 0; j < columns_; ++j) result(j, i) = (*this)(i, j);
    return result;
  }
  // The same entries in row-major order under another shape of the same size.
  Matrix reshaped(Index rows, Index columns) const {
    Matrix result = *this;
    result.rows_ = rows, result.columns_ = columns;
    return result;
  }
  template <MatrixLike M>
  Matrix& operator+=(const M& other) {
    for (Index i = 0; i < rows_; ++i)
      for (Index j = 0; j < columns_; ++j) (*this)(i, j) += other(i, j);
    return *this;
  }
  Matrix& operator*=(const S& factor) {
    for (S& entry : data_) entry *= factor;
    return *this;
  }
  friend bool operator==(const Matrix& a, const Matrix& b) {
    return a.rows_ == b.rows_ && a.columns_ == b.columns_ && a.data_ == b.data_;
  }

 private:
  Index rows_ = 0, columns_ = 0;
  std::vector<S> data_;
};

template <class S>
Matrix<S> zeros(Index rows, Index columns) {
  return Matrix<S>(rows, columns);
}

template <class S>
Matrix<S> identity_matrix(Index size) {
  Matrix<S> result(size, size);
  for (Index i = 0; i < size; ++i) result(i, i) = S(1);
  return result;
}

template <MatrixLike A, MatrixLike B>
Matrix<typename A::Scalar> operator+(const A& a, const B& b) {
  Matrix<typename A::Scalar> result(a.rows(), a.cols());
  for (Index i = 0; i < a.rows(); ++i)
    for (Index j = 0; j < a.cols(); ++j) result(i, j) = a(i, j) + b(i, j);
  return result;
}

// A temporary holds the result: with scalars that allocate, and in products of many small matrices, it is what costs.
template <class S, MatrixLike B>
Matrix<S> operator+(Matrix<S>&& a, const B& b) {
  for (Index i = 0; i < a.rows(); ++i)
    for (Index j = 0; j < a.cols(); ++j) a(i, j) = a(i, j) + b(i, j);
  return std::move(a);
}

template <MatrixLike A, MatrixLike B>
Matrix<typename A::Scalar> operator-(const A& a, const B& b) {
  Matrix<typename A::Scalar> result(a.rows(), a.cols());
  for (Index i = 0; i < a.rows(); ++i)
    for (Index j = 0; j < a.cols(); ++j) result(i, j) = a(i, j) - b(i, j);
  return result;
}

template <class S, MatrixLike B>
Matrix<S> operator-(Matrix<S>&& a, const B& b) {
  for (Index i = 0; i < a.rows(); ++i)
    for (Index j = 0; j < a.cols(); ++j) a(i, j) = a(i, j) - b(i, j);
  return std::move(a);
}

template <MatrixLike A>
Matrix<typename A::Scalar> operator*(const typename A::Scalar& factor, const A& a) {
  Matrix<typename A::Scalar> result(a.rows(), a.cols());
  for (Index i = 0; i < a.rows(); ++i)
    for (Index j = 0; j < a.cols(); ++j) result(i, j) = factor * a(i, j);
  return result;
}

// sum += factor row, entry by entry. A scalar may bring its own, of the same operations.
template <class S>
void add_multiple(S* sum, const S& factor, const S* row, Index columns) {
  if constexpr (std::floating_point<S>) {
    Index j = 0;
    for (; j + 4 <= columns; j += 4) {
      const S a = sum[j] + factor * row[j], b = sum[j + 1] + factor * row[j + 1],
              c = sum[j + 2] + factor * row[j + 2], d = sum[j + 3] + factor * row[j + 3];
      sum[j] = a, sum[j + 1] = b, sum[j + 2] = c, sum[j + 3] = d;
    }
    for (; j < columns; ++j) sum[j] += factor * row[j];
  } else {
    for (Index j = 0; j < columns; ++j) sum[j] += factor * row[j];
  }
}

// A B, each entry summed from left to right.
template <MatrixLike A, MatrixLike B>
Matrix<typename A::Scalar> product(const A& a, const B& b) {
  using S = typename A::Scalar;
  Matrix<S> result(a.rows(), b.cols());
  if constexpr (std::same_as<B, Matrix<S>>) {
    for (Index i = 0; i < a.rows(); ++i)
      for (Index k = 0; k < a.cols(); ++k)
        add_multiple(result.data() + i * b.cols(), S(a(i, k)), b.data() + k * b.cols(), b.cols());
  } else {
    for (Index i = 0; i < a.rows(); ++i)
      for (Index k = 0; k < a.cols(); ++k)
        for (Index j = 0; j < b.cols(); ++j) result(i, j) += a(i, k) * b(k, j);
  }
  return result;
}

// x y^T for two rows x, y.
template <MatrixLike A, MatrixLike B>
Matrix<typename A::Scalar> outer(const A& x, const B& y) {
  Matrix<typename A::Scalar> result(x.cols(), y.cols());
  for (Index i = 0; i < x.cols(); ++i)
    for (Index j = 0; j < y.cols(); ++j) result(i, j) = x(0, i) * y(0, j);
  return result;
}

// x . y for two rows.
template <MatrixLike A, MatrixLike B>
typename A::Scalar dot(const A& x, const B& y) {
  typename A::Scalar sum(0);
  for (Index i = 0; i < x.cols(); ++i) sum += x(0, i) * y(0, i);
  return sum;
}

template <class S>
S power(const S& base, Index exponent) {
  S result(1);
  for (Index i = 0; i < exponent; ++i) result = result * base;
  return result;
}

}  // namespace attest
