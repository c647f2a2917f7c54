// A rank's part of a weight, from a model file into the memory and layout that kernels read. Touches only the bytes of
// the part; each byte is read once, and nothing of the size of the weight is built besides. Pages of the file are given
// back as soon as they have been read.
#pragma once
#include "plait/io/model_files.h"
#include "plait/kernels/team.h"
#include "plait/models/config.h"
#include "plait/tensor/tensor.h"

namespace plait::io {

/// Fills `to` (rows or panels; its box is the rank's part of the state of that name).
///   dtype   that of the file (block types: as stored), or f32, bf16, f64 from any
///   n, k    of panels: outputs and inputs of the box
///   errors  bad_file: no such tensor, another shape than the config says, block types cut inside a block
void load_state(const ModelFiles& files, const ModelConfig& config, const std::string& state, const View& to, i64 n,
                i64 k, kernels::Team& team);

/// Throws bad_file unless every weight of the model is in the files with the shape that the config says, and nothing
/// is there that the model would not read.
void check_files(const ModelFiles& files, const ModelConfig& config, const std::vector<std::string>& states);

/// The file's type of a state's tensor.
DType file_dtype(const ModelFiles& files, const ModelConfig& config, const std::string& state);

}  // namespace plait::io
