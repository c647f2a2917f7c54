// Tensors of a model's files as another format and type has them: names, order of rows, fused and turned matrices,
// gains less one. They are made one after the other, some rows at a time, as a writer asks for them.
//
// Matrices get the type that is asked for. Where the rows of one are no whole blocks of it, another type of about as
// many bits stands in, as in llama.cpp: q5_0 for q4_k, q5_1 for q5_k, q8_0 for q6_k, q4_0 for q2_k and q3_k; f16 where
// blocks of 32 do not fit either. The matrix of the logits is q6_k (q8_0) at least where others have fewer bits. In
// GGUF files vectors and learned positions are f32.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "plait/io/gguf_writer.h"
#include "plait/io/model_files.h"
#include "plait/kernels/team.h"
#include "plait/models/config.h"
#include "plait/models/weights.h"

namespace plait::io {

struct ConvertedTensor {
  std::string name;
  std::vector<i64> shape;
  DType dtype = DType::f32;
  std::optional<DType> instead_of;  // the type that was asked for, where its blocks do not fit
  Producer data;                    // reads the files, which must stay
};

/// dtype: of matrices (safetensors: of everything); nullopt: as they are (safetensors: one type for all, f32 where
/// matrices differ or are in blocks)
///   errors  usage: a type that the format has not; bad_file: as load_state, from the producers too
std::vector<ConvertedTensor> convert_tensors(const ModelFiles& files, const ModelConfig& config, FileFormat to,
                                             std::optional<DType> dtype, kernels::Team& team);

/// The keys that say what the model is (gguf_config.h reads them), without those of its tokenizer, and the factors of a
/// scaled rope as a tensor.
///   errors  usage: what the format cannot say
void write_config(GgufWriter& w, const ModelConfig& config, const std::string& name, std::optional<DType> dtype);

}  // namespace plait::io
