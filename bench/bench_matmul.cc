// Products of one thread beside the limits of the machine, measured in the same minute.
//
//   bench_matmul [--rows 1,8,32,128,512] [--types bf16,f32,q8_0,q4_0,q4_k,...] [--shapes 576x576,...] [--seconds 0.3]
//                [--isa avx512bf16] [--cpu 1]
//
// A shape is k x n; those whose k is no multiple of a type's block are left out. Weights are rotated over at least 200
// MB, so that they come from memory each time (of small products from the last-level cache where that is larger). What
// is compared is run in turns; numbers are medians. Columns:
//   GF/s, % of the best rate of f32 FMA or of the bf16 dot product; GB/s of weights, % of a plain read of the same
//   bytes; time of the exact sum with leaves of 128 (or a block) over the time without; time of oneDNN over ours
//   (packed weights, bf16 and f32)
#include <dlfcn.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <sstream>
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#ifdef PLAIT_DNNL
#include <dnnl.hpp>
#endif

#include "plait/base/random.h"
#include "plait/kernels/cpu/matmul.h"
#include "plait/kernels/panels.h"

namespace plait {
namespace {

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// The fastest tenth: what the work takes when nobody else takes the core.
double typical(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<i64>(v.size() / 10), v.end());
  return v[v.size() / 10];
}

// The machine's limits.

constexpr int kChains = 24, kRounds = 2000;

__attribute__((target("avx512f"))) void fma_loop() {
  __m512 acc[kChains], x = _mm512_set1_ps(0.5f);
#pragma GCC unroll 24
  for (auto& a : acc) a = _mm512_setzero_ps();
  for (int r = 0; r < kRounds; r++)
#pragma GCC unroll 24
    for (int i = 0; i < kChains; i++) asm volatile("vfmadd231ps %1, %1, %0" : "+v"(acc[i]) : "v"(x));
}

__attribute__((target("avx512f"))) void dot_bf16_loop() {
  __m512 acc[kChains], x = _mm512_set1_ps(0.5f);
#pragma GCC unroll 24
  for (auto& a : acc) a = _mm512_setzero_ps();
  for (int r = 0; r < kRounds; r++)
#pragma GCC unroll 24
    for (int i = 0; i < kChains; i++) asm volatile("vdpbf16ps %1, %1, %0" : "+v"(acc[i]) : "v"(x));
}

__attribute__((target("avx512f"))) void dot_int8_loop() {
  __m512i acc[kChains], x = _mm512_set1_epi32(1);
#pragma GCC unroll 24
  for (auto& a : acc) a = _mm512_setzero_si512();
  for (int r = 0; r < kRounds; r++)
#pragma GCC unroll 24
    for (int i = 0; i < kChains; i++) asm volatile("vpdpbusd %1, %1, %0" : "+v"(acc[i]) : "v"(x));
}

__attribute__((target("avx2,fma"))) void fma256_loop() {
  constexpr int kFew = 12;
  __m256 acc[kFew], x = _mm256_set1_ps(0.5f);
#pragma GCC unroll 24
  for (auto& a : acc) a = _mm256_setzero_ps();
  for (int r = 0; r < kRounds; r++)
#pragma GCC unroll 12
    for (int i = 0; i < kFew; i++) asm volatile("vfmadd231ps %1, %1, %0" : "+x"(acc[i]) : "x"(x));
}

/// One word a line, so that memory is the limit: as one stream, fetched far ahead.
void read_bytes(const std::byte* p, i64 bytes) {
  u64 a = 0;
  for (i64 i = 0; i + 64 <= bytes; i += 64) {
    __builtin_prefetch(p + i + 6144);
    u64 x;
    std::memcpy(&x, p + i, 8);
    a |= x;
  }
  asm volatile("" ::"r"(a));
}

double rate(double work, const std::function<void()>& f) {
  std::vector<double> t;
  for (int i = 0; i < 41; i++) {
    const double begin = now_s();
    f();
    t.push_back(now_s() - begin);
  }
  return work / typical(t) * 1e-9;
}

struct Peaks {
  double fma = 0, dot_bf16 = 0, dot_int8 = 0;
  double best(bool quantized) const { return quantized ? std::max(fma, dot_int8) : std::max(fma, dot_bf16); }
};

Peaks peaks(kernels::Isa isa) {
  Peaks p;
  const double wide = 2.0 * 16 * kChains * kRounds;
  if (isa >= kernels::Isa::avx512) {
    p.fma = rate(wide, fma_loop);
    p.dot_int8 = rate(4 * wide, dot_int8_loop);
  } else if (isa == kernels::Isa::avx2) {
    p.fma = rate(wide / 4, fma256_loop);
  }
  if (isa >= kernels::Isa::avx512_bf16) p.dot_bf16 = rate(2 * wide, dot_bf16_loop);
  return p;
}

// One product, ours or oneDNN's, over `copies` of its weights.

struct Case {
  DType type;
  i64 rows, k, n, copies;
  Tensor x, out, exact;
  Buffer w;
  i64 w_bytes;
  std::vector<kernels::Run> plain, leaves;

  Case(DType t, i64 rows_, i64 k_, i64 n_, kernels::Isa isa)
      : type(t), rows(rows_), k(k_), n(n_), w_bytes(kernels::panel_bytes(t, n_, k_)) {
    copies = std::max<i64>(2, ceil_div(i64{200} << 20, w_bytes));
    x = Tensor(t == DType::f32 ? DType::f32 : DType::bf16, {{0, rows}, {0, k}});
    out = Tensor(DType::f32, {{0, rows}, {0, n}});
    exact = Tensor(DType::i64, {{0, rows}, {0, n}});
    for (i64 i = 0; i < x.elements(); i++) {
      const auto v = static_cast<float>(normal(1, static_cast<u64>(i % 10007)));
      from_f32(x.dtype, &v, static_cast<std::byte*>(x.data) + bytes_of(x.dtype, i), 1);
    }
    const i64 stride = round_up(w_bytes, 64);
    w = Buffer(stride * copies);
    const i64 some = std::min<i64>(n, 16);  // rows that are made, and repeated
    std::vector<float> values(static_cast<size_t>(some * k));
    for (size_t i = 0; i < values.size(); i++) values[i] = static_cast<float>(normal(2, i % 10007) * 0.05);
    std::vector<std::byte> file(static_cast<size_t>(n * bytes_of(t, k)));
    from_f32(t, values.data(), file.data(), some * k);
    for (i64 r = some; r < n; r++)
      std::memcpy(file.data() + r * bytes_of(t, k), file.data() + r % some * bytes_of(t, k),
                  static_cast<size_t>(bytes_of(t, k)));
    kernels::pack_panels(t, file.data(), bytes_of(t, k), n, k, {0, kernels::panels_of(n)}, w.data());
    for (i64 c = 1; c < copies; c++) std::memcpy(w.data() + c * stride, w.data(), static_cast<size_t>(w_bytes));
    for (i64 c = 0; c < copies; c++) {
      View view{w.data() + c * stride, t, Layout::panels, {{0, k}, {0, n}}};
      kernels::Args a{"matmul", {x, view}, {out}, {{"t", "k"}, {"k", "n"}}, {{"t", "n"}}, "k"};
      a.ranges = {{"t", {0, rows}}, {"k", {0, k}}, {"n", {0, n}}};
      a.exponent = 40;
      for (i64 e = 0; e < k; e += std::max<i64>(128, info(t).block)) a.leaves['k'].push_back(e);
      a.leaves['k'].push_back(k);
      plain.push_back(*prepared(a, isa));
      a.out = {exact};
      leaves.push_back(*prepared(a, isa));
    }
  }
  static Result<kernels::Run> prepared(const kernels::Args& a, kernels::Isa isa) {
    auto r = kernels::prepare_matmul(a, isa);
    if (!r) fail(Code::usage, "[bench] {}", r.why());
    return r;
  }
  const std::byte* weights(i64 copy) const { return w.data() + copy * round_up(w_bytes, 64); }
};

#ifdef PLAIT_DNNL
struct Peer {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::matmul product;
  dnnl::memory x, out;
  std::vector<dnnl::memory> w;
  Buffer packed;

  explicit Peer(const Case& c) {
    using dnnl::memory;
    const auto type = c.type == DType::f32 ? memory::data_type::f32 : memory::data_type::bf16;
    memory::desc xd({c.rows, c.k}, type, memory::format_tag::ab), wd({c.k, c.n}, type, memory::format_tag::any);
    memory::desc od({c.rows, c.n}, memory::data_type::f32, memory::format_tag::ab);
    dnnl::matmul::primitive_desc d(dnnl::matmul::desc(xd, wd, od), engine);
    product = dnnl::matmul(d);
    x = memory(xd, engine, c.x.data);
    out = memory(od, engine, c.out.data);
    const i64 bytes = round_up(static_cast<i64>(d.weights_desc().get_size()), 64);
    packed = Buffer(bytes * c.copies);  // zeros are a valid matrix
    for (i64 i = 0; i < bytes * c.copies; i += 64) packed.data()[i] = std::byte{1};
    for (i64 i = 0; i < c.copies; i++) w.emplace_back(d.weights_desc(), engine, packed.data() + i * bytes);
  }
  void run(i64 copy) {
    product.execute(stream, {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, w[static_cast<size_t>(copy)]}, {DNNL_ARG_DST, out}});
    stream.wait();
  }
};
#endif

struct Options {
  std::vector<std::string> rows{"1", "8", "32", "128", "512"},
      types{"bf16", "f32", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k"};
  std::vector<std::string> shapes{"576x576", "576x1536", "1536x576", "576x49152", "2048x2048"};
  double seconds = 0.3;
  kernels::Isa isa = kernels::isa();
  int cpu = -1;
};

std::vector<std::string> parts(const std::string& s, char by) {
  std::vector<std::string> v;
  std::stringstream in(s);
  for (std::string p; std::getline(in, p, by);) v.push_back(p);
  return v;
}

Options options(int argc, char** argv) {
  Options o;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--rows") {
      o.rows = parts(value, ',');
    } else if (name == "--types") {
      o.types = parts(value, ',');
    } else if (name == "--shapes") {
      o.shapes = parts(value, ',');
    } else if (name == "--seconds") {
      o.seconds = std::stod(value);
    } else if (name == "--cpu") {
      o.cpu = std::stoi(value);
    } else if (name == "--isa") {
      bool known = false;
      for (int k = 0; k < 4; k++)
        if (auto isa = static_cast<kernels::Isa>(k); value == kernels::name_of(isa)) o.isa = isa, known = true;
      if (!known) fail(Code::usage, "[--isa] got {}", value);
    } else {
      fail(Code::usage, "got {}, want --rows --types --shapes --seconds --isa or --cpu", name);
    }
  }
  return o;
}

void measure(const Options& o, DType type, i64 k, i64 n, i64 rows) {
  kernels::Team team(1);
  kernels::Context context{team};
  Case c(type, rows, k, n, o.isa);
  std::vector<std::function<void(size_t)>> what{
      [&](size_t i) { read_bytes(c.weights(static_cast<i64>(i)), c.w_bytes); }, [&](size_t i) { c.plain[i](context); },
      [&](size_t i) { c.leaves[i](context); }};
#ifdef PLAIT_DNNL
  std::optional<Peer> peer;
  if (!is_quantized(type)) {
    peer.emplace(c);
    what.push_back([&](size_t i) { peer->run(static_cast<i64>(i)); });
  }
#endif
  const Peaks peak = peaks(o.isa);
  std::vector<std::vector<double>> t(what.size());
  const double end = now_s() + o.seconds * static_cast<double>(what.size());
  size_t copy = 0;
  for (int round = 0; round < 5 || now_s() < end; round++)
    for (size_t v = 0; v < what.size(); v++) {
      copy = (copy + 1) % static_cast<size_t>(c.copies);
      const double begin = now_s();
      what[v](copy);
      if (round > 0) t[v].push_back(now_s() - begin);
    }
  const double ours = typical(t[1]), flops = 2.0 * static_cast<double>(rows * k) * static_cast<double>(n);
  std::printf("%6s %5ldx%-6ld %4ld %9.1f %8.1f %5.0f%% %8.2f %5.0f%% %7.3f", name_of(type), static_cast<long>(k),
              static_cast<long>(n), static_cast<long>(rows), ours * 1e6, flops / ours * 1e-9,
              100 * flops / ours * 1e-9 / peak.best(is_quantized(type)), static_cast<double>(c.w_bytes) / ours * 1e-9,
              100 * typical(t[0]) / ours, typical(t[2]) / ours);
  if (what.size() > 3)
    std::printf(" %7.2f\n", typical(t[3]) / ours);
  else
    std::printf("       -\n");
  std::fflush(stdout);
}

int main_of(int argc, char** argv) {
  const Options o = options(argc, argv);
  if (o.cpu >= 0) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(o.cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) fail(Code::usage, "[--cpu] got {}", o.cpu);
  }
  using SetThreads = void (*)(int);  // of the OpenMP library that oneDNN brings, if it does
  if (auto set_threads = reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"))) set_threads(1);
  kernels::flush_denormals();
  const Peaks p = peaks(o.isa);
  Buffer big(i64{512} << 20);
  for (i64 i = 0; i < big.bytes(); i += 64) big.data()[i] = std::byte{1};
  i64 at = 0;
  const double read = rate(8 << 20, [&] {
    read_bytes(big.data() + at, 8 << 20);
    at = (at + (8 << 20)) % big.bytes();
  });
  std::printf("%s, one thread: f32 FMA %.0f GF/s, bf16 dot %.0f GF/s, int8 dot %.0f Gop/s, read %.1f GB/s\n",
              kernels::name_of(o.isa), p.fma, p.dot_bf16, p.dot_int8, read);
  std::printf("%6s %12s %4s %9s %8s %6s %8s %6s %7s %7s\n", "type", "k x n", "rows", "us", "GF/s", "peak", "GB/s",
              "read", "leaves", "oneDNN");
  for (const auto& type : o.types)
    for (const auto& shape : o.shapes)
      for (const auto& rows : o.rows) {
        auto dtype = dtype_named(type);
        auto kn = parts(shape, 'x');
        if (!dtype || !kernels::has_panels(*dtype) || kn.size() != 2) fail(Code::usage, "got {} {}", type, shape);
        if (std::stol(kn[0]) % info(*dtype).block != 0) continue;
        measure(o, *dtype, std::stol(kn[0]), std::stol(kn[1]), std::stol(rows));
      }
  return 0;
}

}  // namespace
}  // namespace plait

int main(int argc, char** argv) {
  try {
    return plait::main_of(argc, argv);
  } catch (const plait::Error& e) {
    std::fprintf(stderr, "bench_matmul: %s\n", e.what());
    return static_cast<int>(e.code());
  }
}
