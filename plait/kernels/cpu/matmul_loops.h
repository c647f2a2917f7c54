// The loops around the tiles of a product: rows of x, panels, chunks of k.
//
// Few rows: the panels are read as they lie, once, a tile of panels at a time. Many rows: chunks of k of a tile's
// panels are unpacked to f32 once (bf16), so that they stay in the second-level cache while all rows of a block pass; c
// goes through memory between chunks, which changes no bit. Rows of x are made f32 (or int8 blocks) once a block of
// rows. Nothing is allocated: the scratch (1.5 MB, sized for a second-level cache of 2 MB) lies on the thread's stack,
// so that all products of a thread reuse the same lines.
#pragma once
#include "plait/kernels/cpu/matmul_blocks.h"

namespace plait::kernels {
namespace {

constexpr Size kScratchX = Size{1} << 20;  // prepared rows of x
constexpr Size kChunk = 1024;              // k of unpacked weights
constexpr Size kBlockRowsMost = 504;       // rows of a block
constexpr Size kDirectChunk = 4096;        // k of panels that are used as they lie
constexpr Size kDirectPairs = 72;          // rows up to which bf16 panels are used as they lie (measured: 72 on
constexpr Size kDirectFloats = 18;         // Sapphire Rapids), and f32 panels without fetching rows of the result
constexpr Size kSuper = 1024;              // k prepared at once where whole rows of x are so long that
constexpr Size kFewRows = 160;             // only fewer than these would fit: unpacking costs as much as 10 rows
constexpr Size kFetchAhead = 6144;         // measured: best of 2048 to 8192 on Zen 4
constexpr Size kPanelPad = 64;             // keeps unpacked panels off each other's cache sets
constexpr Size kMaxPanels = 4;

struct Scratch {
  alignas(64) unsigned char x[kScratchX];
  alignas(64) unsigned char w[kMaxPanels * (kChunk * 64 + kPanelPad)];
  alignas(64) unsigned char c[kBlockRowsMost * kMaxPanels * 16 * 8];
};

PLAIT_INLINE Size least(Size a, Size b) { return a < b ? a : b; }
PLAIT_INLINE Size up(Size a, Size unit) { return (a + unit - 1) / unit * unit; }

template <class V>
void prepare_floats(const MatmulJob& job, const unsigned char* x, Size k, unsigned char* out) {
  const bool swap = job.w_type == MatmulJob::kBf16, wide = job.x_type == MatmulJob::kF32;
  auto* to = reinterpret_cast<float*>(out);
  Size i = 0;
  for (; i + V::kLanes <= k; i += V::kLanes) {
    typename V::F v = wide ? V::load(x + i * 4) : V::widen(x + i * 2);
    V::store(to + i, swap ? V::swap_pairs(v) : v);
  }
  for (; i < k; i++) {
    std::uint32_t bits = 0;
    if (wide)
      __builtin_memcpy(&bits, x + i * 4, 4);
    else
      __builtin_memcpy(reinterpret_cast<unsigned char*>(&bits) + 2, x + i * 2, 2);
    __builtin_memcpy(to + (swap ? i ^ 1 : i), &bits, 4);
  }
  if (swap && k % 2 != 0) to[k - 1] = 0;  // the odd partner comes first
}

// [begin, end) of a bf16 panel -> f32, odd before even.
template <class V>
void unpack(const unsigned char* panel, Size begin, Size end, unsigned char* out) {
  for (Size k = begin; k < end; k += 2, out += 128)
    for (int part = 0; part < V::kParts; part++) {
      V::store(out + part * 32, V::odd(panel + k * 32 + part * 32));
      V::store(out + 64 + part * 32, V::even(panel + k * 32 + part * 32));
    }
}

// Valid columns of a tile's c <-> the result, row by row.
template <class V>
void put(const MatmulJob& job, const unsigned char* c, Size c_stride, Size row, Size rows, Size column, Size columns) {
  for (Size m = 0; m < rows; m++, c += c_stride) {
    unsigned char* out = job.out + (row + m) * job.out_stride;
    if (job.out_type == MatmulJob::kBf16) {
      alignas(64) unsigned char rounded[kMaxPanels * 16 * 2];
      for (Size j = 0; j < columns; j += 16) V::store_bf16(rounded + j * 2, reinterpret_cast<const float*>(c) + j);
      __builtin_memcpy(out + column * 2, rounded, static_cast<unsigned long>(columns * 2));
    } else {
      const Size size = job.out_type == MatmulJob::kI64 ? 8 : 4;
      __builtin_memcpy(out + column * size, c, static_cast<unsigned long>(columns * size));
    }
  }
}

void take(const MatmulJob& job, unsigned char* c, Size c_stride, Size row, Size rows, Size column, Size columns) {
  const Size size = job.out_type == MatmulJob::kI64 ? 8 : 4;
  for (Size m = 0; m < rows; m++)
    __builtin_memcpy(c + m * c_stride, job.out + (row + m) * job.out_stride + column * size,
                     static_cast<unsigned long>(columns * size));
}

// Has one of them bf16 results? They cannot hold the chain between chunks of k.
PLAIT_INLINE bool any_rounds(const MatmulPart* parts, Size count) {
  bool any = false;
  for (Size i = 0; i < count; i++) any |= parts[i].job->out_type == MatmulJob::kBf16;
  return any;
}

template <class V>
struct Loops {
  const Method<V>& method;
  Scratch& scratch;
  const MatmulPart* parts;
  Size part_count;
  const MatmulJob* job = parts[0].job;  // of the part that is being made
  typename V::I largest = V::zero_int();

  const unsigned char* x = nullptr;  // the block's rows at k = super_begin
  Size x_stride = 0;
  Size chunk = 0;  // k that pass at once, 0: all

  // The end of the leaves (or of the chain's part) that start at `begin` and take at most `most` k, at least one leaf.
  Size part_end(Size begin, Size end, Size most, Size& leaf) const {
    if (job->leaves == 0) return least(begin + most, end);
    Size last = leaf + 1;
    while (job->edges[last] < end && job->edges[last + 1] - begin <= most) last++;
    leaf = last;
    return job->edges[last];
  }

  static void later(Tile& t, const unsigned char* begin, const unsigned char* end) {
    for (; begin < end && t.lines < kMostLines; begin += 64) t.line[t.lines++] = begin;
  }
  static void later_rows(Tile& t, const unsigned char* c, Size rows, Size bytes) {
    for (Size m = 0; m < rows; m++) later(t, c + m * t.c_stride, c + m * t.c_stride + bytes);
  }
  // Part i of `count` of the panels at w.
  void later_panels(Tile& t, const unsigned char* w, Size panels, Size k, Size i, Size count) const {
    const Size bytes = k * method.w_bytes_of_k;
    for (Size p = 0; p < panels; p++)
      later(t, w + p * job->panel_bytes + bytes * i / count / 64 * 64,
            w + p * job->panel_bytes + bytes * (i + 1) / count);
  }

  // A product of few rows is as fast as memory gives its weights, and memory gives most in one stream. One panel is
  // fetched a fixed way ahead, at its end (`left` bytes away) in the next one; of several the next ones, line after
  // line
  // (`whole`: they lie so). Of several tiles that read the same panels each fetches its share of what comes next.
  void share_fetching(Tile& t, const unsigned char* next, Size panels, Size left, Size i, Size count, Size to_coming,
                      bool whole) const {
    t.fetch_end = job->panel_bytes;
    t.fetch_jump = 0;
    t.fetch_step = 1;
    t.fetch_stride = job->panel_bytes;
    if (count == 1 && panels == 1) {
      t.fetch = t.w + kFetchAhead;
      t.fetch_end = left - kFetchAhead;
      t.fetch_jump = to_coming - job->panel_bytes;
      t.fetch_panels = 1;
      return;
    }
    const Size begin = panels * i / count, end = panels * (i + 1) / count;
    t.fetch = next != nullptr ? next + begin * job->panel_bytes : t.w;
    t.fetch_panels = next != nullptr ? static_cast<int>(end - begin) : 0;
    if (count == 1 && whole) {
      t.fetch_step = panels;
      t.fetch_stride = 64;
    }
  }

  // Rows [row, row + rows) x panels [panel, panel + panels) x k in [begin, end), which starts at leaf `leaf`; the
  // panels at `coming` (null: none) are next.
  void panels_of_rows(Size row, Size rows, Size panel, Size panels, Size begin, Size end, Size leaf,
                      const unsigned char* coming) {
    const Size width = panels * 16, column = panel * 16, columns = least(width, job->n - column);
    const Size item = job->out_type == MatmulJob::kI64 ? 8 : 4;
    const bool aside = columns < width || job->out_type == MatmulJob::kBf16;
    Tile t;
    t.c_stride = aside ? width * item : job->out_stride;
    unsigned char* c = aside ? scratch.c : job->out + row * job->out_stride + column * item;
    if (aside && begin > 0) take(*job, c, t.c_stride, row, rows, column, columns);
    t.x_stride = x_stride;
    t.k = job->k;
    t.scale = job->scale;
    const unsigned char* w = job->w + panel * job->panel_bytes;
    const TileFn<V>* tiles = method.tiles[panels > 1][job->leaves > 0];
    const Size whole = chunk > 0 ? chunk : end - begin, pieces = (end - begin + whole - 1) / whole;
    const Size most = least(whole, up((end - begin + pieces - 1) / pieces, 32));
    const Size count = (rows + method.rows - 1) / method.rows;
    for (Size k = begin; k < end;) {
      const Size first_leaf = leaf;
      const Size k_end = part_end(k, end, most, leaf);
      const Size chain[2] = {k, k_end};
      t.edges = job->leaves > 0 ? job->edges + first_leaf : chain;
      t.leaves = job->leaves > 0 ? leaf - first_leaf : 1;
      t.first = k == 0;
      if (method.unpack) {
        t.w_stride = kChunk * 64 + kPanelPad;
        t.w = scratch.w;
        for (Size p = 0; p < panels; p++) unpack<V>(w + p * job->panel_bytes, k, k_end, scratch.w + p * t.w_stride);
      } else {
        t.w_stride = job->panel_bytes;
        t.w = w + k * method.w_bytes_of_k;
      }
      const unsigned char* next = k_end < end         ? w + k_end * method.w_bytes_of_k
                                  : coming != nullptr ? coming + begin * method.w_bytes_of_k
                                                      : nullptr;
      Size m = 0;
      for (Size i = 0; i < count; i++) {
        const Size here = rows / count + (i < rows % count);
        t.lines = 0;
        if (i + 1 < count && t.first) later_rows(t, c + (m + here) * t.c_stride, here, width * item);
        if (next != nullptr && method.listed) later_panels(t, next, panels, k_end - k, i, count);
        t.line[t.lines] = t.w;
        share_fetching(t, next, panels, job->panel_bytes - k * method.w_bytes_of_k, i, count,
                       coming != nullptr ? coming - w : panels * job->panel_bytes, k == 0 && k_end == job->k);
        t.x = x + m * x_stride + (k - super_begin) * method.x_bytes_of_k;
        t.c = c + m * t.c_stride;
        tiles[here - method.least_rows](t, largest);
        m += here;
      }
      k = k_end;
    }
    if (aside) put<V>(*job, c, t.c_stride, row, rows, column, columns);
  }

  Size super_begin = 0;

  const unsigned char* first_after(const MatmulPart* part) const {
    if (++part == parts + part_count) return nullptr;
    return part->job->w + part->panel_begin * part->job->panel_bytes;
  }

  void run(Size row_begin, Size row_end) {
    const Size rows = row_end - row_begin;
    Size block = kBlockRowsMost, super = job->k, row_bytes = method.x_row_bytes;
    if (row_bytes > 0) {
      if (method.unpack && !any_rounds(parts, part_count) && kScratchX / row_bytes < least(rows, kFewRows)) {
        super = kSuper;
        row_bytes = (kSuper + 16) * 4;
      }
      block = least(block, kScratchX / row_bytes);
    }
    const Size blocks = (rows + block - 1) / block;
    block = least(block, up((rows + blocks - 1) / blocks, method.rows));
    Size leaf = 0;
    for (super_begin = 0; super_begin < job->k;) {
      const Size first_leaf = leaf;
      const Size super_end =
          super == job->k ? (leaf = job->leaves, job->k) : part_end(super_begin, job->k, super, leaf);
      for (Size r = row_begin; r < row_end; r += block) {
        const Size here = least(block, row_end - r);
        x_stride = row_bytes > 0 ? row_bytes : job->x_stride;
        x = row_bytes > 0 ? scratch.x : job->x + r * job->x_stride + super_begin * method.x_bytes_of_k;
        if (row_bytes > 0)
          for (Size m = 0; m < here; m++)
            method.prepare(*job,
                           job->x + (r + m) * job->x_stride + super_begin * (job->x_type == MatmulJob::kF32 ? 4 : 2),
                           least(super_end, job->x_k) - super_begin, scratch.x + m * row_bytes);
        for (const MatmulPart* part = parts; part != parts + part_count; part++) {
          job = part->job;
          for (Size p = part->panel_begin; p < part->panel_end;) {
            const Size panels = p + method.panels <= part->panel_end ? method.panels : 1, next = p + panels;
            const unsigned char* coming = next < part->panel_end ? job->w + next * job->panel_bytes : first_after(part);
            panels_of_rows(r, here, p, panels, super_begin, super_end, first_leaf, coming);
            p = next;
          }
          if (part->after != nullptr && super_end == job->k) part->after(part->context, *part, r, r + here);
        }
      }
      super_begin = super_end;
    }
  }
};

/// kP panels by one of these numbers of rows, ascending without gaps.
template <class V, template <class, int, int> class Source, int kP, int... kRows>
constexpr Method<V> method_of_rows() {
  Method<V> m{};
  m.tiles[0][0] = kTiles<V, Source, 1, false, kRows...>;
  m.tiles[0][1] = kTiles<V, Source, 1, true, kRows...>;
  m.tiles[1][0] = kTiles<V, Source, kP, false, kRows...>;
  m.tiles[1][1] = kTiles<V, Source, kP, true, kRows...>;
  m.panels = kP;
  constexpr Size rows[] = {kRows...};
  m.least_rows = rows[0];
  m.rows = rows[sizeof...(kRows) - 1];
  return m;
}

template <class V, template <class, int, int> class Source, int kP>
constexpr Method<V> method_of(Size rows) {
  Method<V> m = method_of_rows<V, Source, kP, 1, 2, 3, 4, 5, 6>();
  m.rows = rows;
  return m;
}

/// The same; one row takes one panel at a time, as it lies in memory.
template <class V, template <class, int, int> class Source, int kP>
constexpr Method<V> method_of_once(Size rows, Size rows_of_tile) {
  if constexpr (V::kParts == 1)
    if (rows == 1) return method_of_rows<V, Source, 1, 1>();
  return method_of<V, Source, kP>(rows_of_tile);
}

// Bytes of a row of f32: rounded up, and off a multiple of 4096 so that rows don't meet in one set of the cache.
PLAIT_INLINE Size float_row_bytes(Size k) { return up(up(k, 2) * 4, 64) + 64; }

template <class V>
std::uint32_t run_method(const MatmulPart* parts, Size count, const Method<V>& method, Size chunk, Size row_begin,
                         Size row_end) {
  Scratch scratch;
  Loops<V> loops{method, scratch, parts, count};
  loops.chunk = chunk;
  loops.run(row_begin, row_end);
  return V::largest_of(loops.largest);
}

template <class V, class T, template <class, int, int> class Source>
std::uint32_t run_blocks(const MatmulPart* parts, Size count, Size row_begin, Size row_end) {
  const Size row_bytes = block_row_bytes<T>(parts[0].job->k);
  // Sums of 16 wait for arithmetic more than for memory: two panels keep the units busier.
  Method<V> m = T::kSub < 32 ? method_of<V, Source, V::kBlockPanels>(V::kBlockRows)
                             : method_of_once<V, Source, V::kBlockPanels>(row_end - row_begin, V::kBlockRows);
  m.prepare = prepare_blocks<V, T>;
  m.x_row_bytes = row_bytes;
  return run_method<V>(parts, count, m, 0, row_begin, row_end);
}
template <class V, MatmulJob::Type kType>
std::uint32_t run_blocks_of(const MatmulPart* parts, Size count, Size row_begin, Size row_end) {
  return run_blocks<V, BlockType<kType>, BlocksOf<kType>::template Blocks>(parts, count, row_begin, row_end);
}

/// The products in V's instruction set, all but those of blocks of 256 (matmul_k_*.cc).
template <class V>
std::uint32_t product(const MatmulPart* parts, Size count, Size row_begin, Size row_end) {
  const MatmulJob& job = *parts[0].job;
  Method<V> m;
  Size chunk = 0;
  const Size rows = row_end - row_begin;
  switch (job.w_type) {
    case MatmulJob::kQ4_0:
      return run_blocks_of<V, MatmulJob::kQ4_0>(parts, count, row_begin, row_end);
    case MatmulJob::kQ4_1:
      return run_blocks_of<V, MatmulJob::kQ4_1>(parts, count, row_begin, row_end);
    case MatmulJob::kQ5_0:
      return run_blocks_of<V, MatmulJob::kQ5_0>(parts, count, row_begin, row_end);
    case MatmulJob::kQ5_1:
      return run_blocks_of<V, MatmulJob::kQ5_1>(parts, count, row_begin, row_end);
    case MatmulJob::kQ8_0:
      return run_blocks_of<V, MatmulJob::kQ8_0>(parts, count, row_begin, row_end);
    case MatmulJob::kBf16:
      if (rows > kDirectPairs && job.longest_leaf <= kChunk &&
          (!any_rounds(parts, count) || kScratchX / float_row_bytes(job.k) >= 48)) {
        m = method_of<V, Floats, V::kPanels>(V::kRows);
        m.unpack = m.listed = true;
        chunk = kChunk;
      } else {
        m = method_of_once<V, Pairs, V::kPanels>(rows, V::kRows);
        chunk = kDirectChunk;
      }
      m.prepare = prepare_floats<V>;
      m.w_bytes_of_k = 32;
      break;
    default:
      m = rows > kDirectFloats ? method_of<V, Floats, V::kPanels>(V::kRows)
                               : method_of_once<V, FloatsOnce, V::kPanels>(rows, V::kRows);
      m.listed = rows > kDirectFloats;
      m.prepare = prepare_floats<V>;
      m.w_bytes_of_k = 64;
      chunk = m.listed ? kChunk : kDirectChunk;
      break;
  }
  m.x_bytes_of_k = 4;
  if (job.w_type == MatmulJob::kBf16 || job.x_type != MatmulJob::kF32) m.x_row_bytes = float_row_bytes(job.k);
  return run_method<V>(parts, count, m, chunk, row_begin, row_end);
}

}  // namespace
}  // namespace plait::kernels
