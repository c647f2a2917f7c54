// Products in scalar code: the order of docs/numerics.md "Products" written down. It is what every other path is
// compared with bit by bit, and the path of processors without AVX2.
#include <cmath>

#include "plait/kernels/cpu/matmul_job.h"
#include "plait/kernels/cpu/quantize.h"
#include "plait/kernels/panels.h"

namespace plait::kernels {

namespace {

template <class T>
T load(const unsigned char* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

float load_half(const unsigned char* p) { return f16_to_f32(load<std::uint16_t>(p)); }
float load_bf16(const unsigned char* p) { return static_cast<float>(load<bf16>(p)); }

struct Panel {
  const MatmulJob& job;
  const unsigned char* x;  // a row
  const unsigned char* w;  // a panel

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
      for (i64 b = begin / 32; b < end / 32; b++) add_block(b, acc);
    }
  }

  void add_block(i64 b, float* acc) const {
    const DType type = job.w_type == MatmulJob::kQ8_0   ? DType::q8_0
                       : job.w_type == MatmulJob::kQ4_1 ? DType::q4_1
                                                        : DType::q4_0;
    const DType x_type = job.x_type == MatmulJob::kF32 ? DType::f32 : DType::bf16;
    const PanelBlock at = panel_block(type, job.k, b);
    std::int8_t q[32];
    float d;
    std::int32_t sum;
    quantize(x_type, x + bytes_of(x_type, 32 * b), 32, q, &d, &sum);
    for (i64 c = 0; c < kPanel; c++) {
      std::int32_t dot = 0;
      for (i64 i = 0; i < 32; i++) {
        std::int32_t weight;
        if (type == DType::q8_0) {
          weight = load<std::uint8_t>(w + at.quants + i / 4 * 64 + 4 * c + i % 4) - 128;
        } else {
          auto byte = load<std::uint8_t>(w + at.quants + i % 16 / 4 * 64 + 4 * c + i % 4);
          weight = (i < 16 ? byte & 15 : byte >> 4) - (type == DType::q4_0 ? 8 : 0);
        }
        dot += weight * q[i];
      }
      acc[c] = std::fma(static_cast<float>(dot), d * load_half(w + at.scales + 2 * c), acc[c]);
      if (type == DType::q4_1) acc[c] = std::fma(load_half(w + at.minima + 2 * c), d * static_cast<float>(sum), acc[c]);
    }
  }
};

std::uint32_t product(const MatmulJob& job, i64 row_begin, i64 row_end, i64 panel_begin, i64 panel_end) {
  std::uint32_t largest = 0;
  for (i64 p = panel_begin; p < panel_end; p++)
    for (i64 t = row_begin; t < row_end; t++) {
      Panel panel{job, job.x + t * job.x_stride, job.w + p * job.panel_bytes};
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
