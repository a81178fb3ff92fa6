// The stages of one chunked Lin (chunk_linear.hpp) at their actual values, and how the final output reads
// them. With cotangents Xi of the rows x_j of a Lin for the output (t, c), an error in
//   weights W_ji costs sum_a Xi_ja v_ia,   state S_xa costs sum_j w_j q_jx Xi_ja,   faded key K'_sx the
//   state's with v_s.
// Three kinds of cotangent occur where Lins are composed, and each keeps those sums coherent:
//   ReadAsValue  Xi_ja = M_tj [a = c]           the Lin is the output, or the values of the next Lin
//   ReadAsKey    Xi_ja = Omega_tj q_ta v_jc     the keys of the next Lin
//   ReadAsQuery  Xi_ja = [j = t] C_t(a, c)      the queries of the next Lin, C_t the moment that it reads
#pragma once
#include <memory>
#include <mutex>
#include <utility>

#include "reference/operators/common/chunk_linear.hpp"
#include "reference/operators/common/error_rows.hpp"

namespace attest {

struct LinChunk {
  Index first, size;
  Array decay, gate_error;  // (size + 1, size + 1)
  Array read;               // (size, 1) weight of the state before the chunk in each row
  Array weights;            // (size, size)
  Array keys;               // (size, key_dim) faded to the end of the chunk
  Array state;              // (key_dim, value_dim) before the chunk
  double through() const { return decay(size, 0); }
  Index last() const { return first + size; }
};

struct LinStages;
// One array per chunk; for states one more, for what enters after the last chunk (and is read by nothing).
using PerChunk = std::vector<Array>;

// The contribution of errors in the rows, weights, states or keys of a Lin to the wanted rows of the output, (count, columns).
class Reader {
 public:
  virtual ~Reader() = default;
  virtual Array rows(Norm p, const LinStages& lin, const Array& error) const = 0;
  virtual Array weights(Norm p, const LinStages& lin, const PerChunk& error) const = 0;
  // error[b] is in the state before chunk b: of that chunk's product alone, or of the state carried from
  // there on.
  virtual Array states(Norm p, const LinStages& lin, const PerChunk& error, bool carried) const = 0;
  virtual Array keys(Norm p, const LinStages& lin, const PerChunk& error) const = 0;
};

struct LinStages {
  LinStages(const Units& units, std::string name, Array q, Array k, Array v, Gates<double> gates, Array state,
            Index width, Reads reads = Reads::inclusive);
  // Adds every stage of the Lin as `reader` sees it. Where the product format is narrower than the inputs,
  // the rounding of q, k and v is charged to each use by absolute values, without its cancellation.
  void collect(const Reader& reader, ErrorSum& sum, int threads = 1) const;
  Index tokens() const { return q.rows(); }

  std::string name;
  Array q, k, v;
  Gates<double> gates;
  Index shift;
  std::vector<LinChunk> chunks;
  Array o, final_state;

 private:
  PerChunk weights_arithmetic() const;
  PerChunk carry_arithmetic() const;
  Array rows_arithmetic() const;
  const Units& units_;
};

// The gate of token t.
double step_gate(const Gates<double>& gates, Index t);
// Omega(t, j) = product of the gates of j+1 .. t for j <= t, else 0; t of the rows. (count, tokens)
Array decay_between(const Gates<double>& gates, const RowSet& rows);

class ReadAsValue : public Reader {
 public:
  explicit ReadAsValue(RowSet rows, double factor = 1) : rows_(std::move(rows)), factor_(factor) {}
  ReadAsValue(RowSet rows, Array mixing)  // (count, tokens)
      : rows_(std::move(rows)), mixing_(std::move(mixing)) {}
  Array rows(Norm p, const LinStages& lin, const Array& error) const override;
  Array weights(Norm p, const LinStages& lin, const PerChunk& error) const override;
  Array states(Norm p, const LinStages& lin, const PerChunk& error, bool carried) const override;
  Array keys(Norm p, const LinStages& lin, const PerChunk& error) const override;

 private:
  Array read_states(Norm p, const LinStages& lin, const PerChunk& error, bool carried) const;
  RowSet rows_;
  double factor_ = 1;
  std::optional<Array> mixing_;
};

class ReadAsKey : public Reader {
 public:
  // The next Lin's queries, values and gates; its key of token j is row_scale_j x_j (empty: x_j).
  ReadAsKey(RowSet rows, const Array& q, Array v, Gates<double> gates, std::vector<double> row_scale = {});
  Array rows(Norm p, const LinStages& lin, const Array& error) const override;
  Array weights(Norm p, const LinStages& lin, const PerChunk& error) const override;
  Array states(Norm p, const LinStages& lin, const PerChunk& error, bool carried) const override;
  Array keys(Norm p, const LinStages& lin, const PerChunk& error) const override;

 private:
  // The sum over chunks of |along[b] (row)| |what the row reads of the state before chunk b|; along[b] (count, key_dim),
  // the error of each state row, projected on the query of the output, or empty.
  Array read_states(Norm p, const LinStages& lin, const PerChunk& along, bool carried) const;
  // What a row reads of the tokens of a chunk before `end`, there, and the gates of that part.
  std::pair<Array, double> of_chunk(const LinStages& lin, const LinChunk& c, Index end) const;
  struct Chunks {
    std::once_flag once;
    std::vector<Array> sums;
    std::vector<double> fades;
  };
  const Chunks& whole(const LinStages& lin) const;  // of the one Lin that is read so
  std::shared_ptr<Chunks> chunks_ = std::make_shared<Chunks>();
  RowSet rows_;
  Array q_, v_;  // (count, key_dim), (tokens, value_dim)
  Gates<double> gates_;
  std::vector<double> row_scale_;
  Array omega_;
};

class ReadAsQuery : public Reader {
 public:
  ReadAsQuery(RowSet rows, std::vector<Array> moments)  // per wanted row (width of x, columns)
      : rows_(std::move(rows)), moments_(std::move(moments)) {}
  Array rows(Norm p, const LinStages& lin, const Array& error) const override;
  Array weights(Norm p, const LinStages& lin, const PerChunk& error) const override;
  Array states(Norm p, const LinStages& lin, const PerChunk& error, bool carried) const override;
  Array keys(Norm p, const LinStages& lin, const PerChunk& error) const override;

 private:
  Array zero() const { return Array::Zero(rows_.count(), moments_.empty() ? 0 : moments_[0].cols()); }
  RowSet rows_;
  std::vector<Array> moments_;
};

// X_t for every wanted row: X <- gate X + k_t v_t^T, after the token.
std::vector<Array> moments_after(const Array& k, const Array& v, const Gates<double>& gates, Array state,
                                 const RowSet& rows);

}  // namespace attest
