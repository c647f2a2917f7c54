// Where a state of the graph lies in a model file.
//
// A state of dims [out..., in...] is a matrix of `rows` x `cols` (the products of its out and in dims), row-major; a
// vector has one column. In a file it is part of one tensor: rows that begin at `row0` (GPT-2 fuses q, k, v), possibly
// transposed (GPT-2 in Hugging Face files), possibly with the rows of every head interleaved (Llama in GGUF files),
// possibly less one (the gains of a Gemma in Hugging Face files).
#pragma once
#include <string>
#include <vector>

#include "plait/graph/graph.h"
#include "plait/models/config.h"

namespace plait {

enum class FileFormat { hf, gguf };

/// One kind of weight of a family, for all layers: "*" stands for the layer's number.
struct WeightRow {
  std::string state;              // "layers.*.wq"
  std::string dims;               // out | in: "NH|D"; a vector has no bar
  std::string hf, gguf;           // the tensor's name; of hf without what `hf_prefix` puts before it
  int part = 0, parts = 1;        // the file's tensor holds `parts` states of the same size, this one is number `part`
  bool hf_transposed = false;     // the file has [in][out]
  bool gguf_interleaved = false;  // the rows of each head lie interleaved
  bool hf_less_one = false;       // a gain that the file holds less one
};

struct WeightSlice {
  std::vector<std::string> tensors;  // names that files use; the first that is there counts
  i64 row0 = 0;
  bool transposed = false;      // the file has [cols][rows]; row0 is then an offset in its columns
  bool interleaved = false;     // row 2i + j of a head in the file is row j H/2 + i of the state
  i64 rows = 0, cols = 1;       // of the state
  i64 head = 0;                 // H, of interleaved slices
  bool less_one = false;        // the file holds the numbers less one; of vectors alone
  std::vector<i64> file_shape;  // of the whole file tensor, outermost first

  /// The file's row (its column, where transposed) that holds a row of the state.
  i64 file_row(i64 row) const {
    i64 r = row;
    if (interleaved) {
      const i64 in_head = row % head, half = head / 2;
      r = row - in_head + (in_head % half) * 2 + in_head / half;
    }
    return row0 + r;
  }
};

/// The row of the family's table that a state belongs to; bad_file for a name that is no weight of the family.
const WeightRow& weight_row(const ModelConfig& c, const std::string& state);

/// From which part of which tensor a weight comes.
WeightSlice weight_slice(const ModelConfig& c, FileFormat format, const std::string& state);

/// The weights of a graph: its states that are no cache, in the graph's order.
std::vector<std::string> weights_of(const Graph& g);

/// Throws bad_file (tensor, wanted, got) when the file's tensor has another shape than the slice is cut from.
void check_shape(const WeightSlice& s, std::string_view file, std::string_view tensor, const std::vector<i64>& shape);

/// Those of a file's tensor names that neither a weight of the model comes from nor is known to change nothing: such a
/// file is not the model that its config says.
std::vector<std::string> unknown_tensors(const ModelConfig& c, FileFormat format,
                                         const std::vector<std::string>& names);

}  // namespace plait
