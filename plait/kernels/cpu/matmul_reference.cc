// Products in scalar code: the order of docs/numerics.md "Products" written down. It is what every other path is
// compared with bit by bit, and the path of processors without AVX2.
#include <cmath>

#include "plait/kernels/cpu/matmul_job.h"
#include "plait/kernels/cpu/quantize.h"
#include "plait/kernels/panels.h"
#include "plait/tensor/blocks.h"

namespace plait::kernels {

namespace {

template <class T>
T load(const unsigned char* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

float load_bf16(const unsigned char* p) { return static_cast<float>(load<bf16>(p)); }

DType type_of(const MatmulJob& job) {
  if (job.w_type == MatmulJob::kF32) return DType::f32;
  if (job.w_type == MatmulJob::kBf16) return DType::bf16;
  static_assert(MatmulJob::kQ6_K - MatmulJob::kQ4_0 + 1 == std::size(kBlockTypes));  // in the same order
  return kBlockTypes[job.w_type - MatmulJob::kQ4_0];
}

struct Panel {
  const MatmulJob& job;
  const unsigned char* x;  // a row
  const unsigned char* w;  // a panel
  DType w_type;

  float x_at(i64 k) const {
    if (k >= job.x_k) return 0;
    return job.x_type == MatmulJob::kF32 ? load<float>(x + 4 * k) : load_bf16(x + 2 * k);
  }

  /// acc[16] += the products of k in [begin, end).
  void add(i64 begin, i64 end, float* acc) const {
    if (job.w_type == MatmulJob::kF32) {
      for (i64 k = begin; k < end; k++)
        for (i64 c = 0; c < kPanel; c++) acc[c] = std::fma(x_at(k), load<float>(w + 64 * k + 4 * c), acc[c]);
    } else if (job.w_type == MatmulJob::kBf16) {
      for (i64 k = begin; k < end; k += 2)
        for (i64 c = 0; c < kPanel; c++) {
          acc[c] = std::fma(x_at(k + 1), load_bf16(w + 32 * k + 4 * c + 2), acc[c]);
          acc[c] = std::fma(x_at(k), load_bf16(w + 32 * k + 4 * c), acc[c]);
        }
    } else {
      const i64 block = info(w_type).block;
      for (i64 b = begin / block; b < end / block; b++) add_block(b, acc);
    }
  }

  void add_block(i64 b, float* acc) const {
    const DType x_type = job.x_type == MatmulJob::kF32 ? DType::f32 : DType::bf16;
    const i64 block = info(w_type).block, sub = sub_block(w_type);
    const bool minima = has_minimum(w_type);
    std::int8_t q[kLargestBlock];
    float d[kLargestBlock / 32];
    std::int32_t sums[kLargestBlock / 32];
    quantize(x_type, x + bytes_of(x_type, block * b), block, q, d, sums);
    for (i64 c = 0; c < kPanel; c++) {
      std::byte bytes[kLargestBlockBytes];
      panel_block_of(w_type, reinterpret_cast<const std::byte*>(w), job.k, b, c, bytes);
      BlockParts parts;
      take_apart(w_type, bytes, parts);
      for (i64 s = 0; s < block / sub; s++) {
        std::int32_t dot = 0, sum = 0;
        for (i64 i = s * sub; i < (s + 1) * sub; i++) {
          dot += parts.q[i] * q[i];
          sum += q[i];
        }
        const float dx = d[s * sub / 32];
        acc[c] = std::fma(static_cast<float>(dot), dx * parts.scale[s], acc[c]);
        if (minima) acc[c] = std::fma(-parts.minimum[s], dx * static_cast<float>(sum), acc[c]);
      }
    }
  }
};

std::uint32_t product(const MatmulJob& job, i64 row_begin, i64 row_end, i64 panel_begin, i64 panel_end) {
  std::uint32_t largest = 0;
  for (i64 p = panel_begin; p < panel_end; p++)
    for (i64 t = row_begin; t < row_end; t++) {
      Panel panel{job, job.x + t * job.x_stride, job.w + p * job.panel_bytes, type_of(job)};
      unsigned char* out = job.out + t * job.out_stride;
      const i64 columns = std::min(kPanel, job.n - p * kPanel);
      if (job.out_type != MatmulJob::kI64) {
        float acc[kPanel] = {};
        panel.add(0, job.k, acc);
        for (i64 c = 0; c < columns; c++) {
          if (job.out_type == MatmulJob::kF32) {
            std::memcpy(out + 4 * (p * kPanel + c), &acc[c], 4);
          } else {
            bf16 rounded(acc[c]);
            std::memcpy(out + 2 * (p * kPanel + c), &rounded, 2);
          }
        }
        continue;
      }
      u64 total[kPanel] = {};  // wraps like the vector code
      for (i64 leaf = 0; leaf < job.leaves; leaf++) {
        float acc[kPanel] = {};
        panel.add(job.edges[leaf], job.edges[leaf + 1], acc);
        for (i64 c = 0; c < columns; c++) {
          const float scaled = acc[c] * job.scale;
          largest = std::max(largest, std::bit_cast<std::uint32_t>(scaled) & 0x7fffffffu);
          if (std::fabs(scaled) < 0x1p63f) total[c] += static_cast<u64>(std::llrintf(scaled));
        }
      }
      std::memcpy(out + 8 * p * kPanel, total, static_cast<size_t>(columns) * 8);
    }
  return largest;
}

}  // namespace

std::uint32_t matmul_reference(const MatmulPart* parts, i64 count, i64 row_begin, i64 row_end) {
  std::uint32_t largest = 0;
  for (const MatmulPart* p = parts; p != parts + count; p++) {
    largest = std::max(largest, product(*p->job, row_begin, row_end, p->panel_begin, p->panel_end));
    if (p->after != nullptr) p->after(p->context, *p, row_begin, row_end);
  }
  return largest;
}

}  // namespace plait::kernels
