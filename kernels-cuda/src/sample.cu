// The token after each row, chosen among its K <= 64 best candidates by temperature, top-k,
// top-p and min-p, with the uniform of (seed, position).
//
// params [8] i32: bits of the temperature, top-k, bits of top-p and of min-p, seed (two
// words), two unused. positions [M] i32, ids [L, K] i32 and values [L, K] f32 best first,
// log_sum_exp [L] f32, choices [L, 1] i32: a token, -1 where the first id is negative, -2
// where these candidates do not decide.
//
// One warp to a row, two candidates to a lane. Exponentials are taken in parallel; each sum
// is taken by every lane alike, one term after the other. The arithmetic is sample/draw.rs
// of the engine, bit for bit: f64, rounded at every step, nothing fused, no library.
// Bound: latency, of some 200 dependent f64 additions.

#include "foretoken.cuh"

namespace {

typedef unsigned long long Word;

constexpr int kMost = 64;

constexpr int kNotFinite = -1;
constexpr int kUndecided = -2;

// Words of `params`.
constexpr int kTemperature = 0;
constexpr int kTopK = 1;
constexpr int kTopP = 2;
constexpr int kMinP = 3;
constexpr int kSeed = 4;

__device__ double add(double a, double b) { return __dadd_rn(a, b); }
__device__ double sub(double a, double b) { return __dsub_rn(a, b); }
__device__ double mul(double a, double b) { return __dmul_rn(a, b); }

// e^x for x <= 0; 0 below -708. sample/math.rs of the engine has the derivation.
__device__ double exp_of(double x) {
  constexpr double kSmallest = -708.0;
  constexpr double kRound = 6755399441055744.0;
  constexpr double kLog2E = 1.44269504088896340735992468100189214;
  const double kLn2High = __longlong_as_double(0x3fe62e42fee00000ll);
  const double kLn2Low = __longlong_as_double(0x3dea39ef35793c76ll);
  constexpr double kTaylor[14] = {
      1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0,
      1.0 / 362880.0,     1.0 / 40320.0,     1.0 / 5040.0,     1.0 / 720.0,
      1.0 / 120.0,        1.0 / 24.0,        1.0 / 6.0,        0.5,
      1.0,                1.0};
  const double bounded = x < kSmallest ? kSmallest : x;
  const double rounded = add(mul(bounded, kLog2E), kRound);
  const double n = sub(rounded, kRound);
  const double r = sub(sub(bounded, mul(n, kLn2High)), mul(n, kLn2Low));
  double series = 0.0;
#pragma unroll
  for (int i = 0; i < 14; i++) series = add(mul(series, r), kTaylor[i]);
  const Word scale = (static_cast<Word>(__double_as_longlong(rounded)) + 1023) << 52;
  const double power = __longlong_as_double(static_cast<long long>(scale));
  return x < kSmallest ? 0.0 : mul(series, power);
}

// The uniform of a position: 53 bits of Philox4x32-10 (Salmon and others, SC 2011).
__device__ double uniform_of(const unsigned (&seed)[2], Word position) {
  unsigned c0 = static_cast<unsigned>(position), c1 = static_cast<unsigned>(position >> 32);
  unsigned c2 = 0, c3 = 0, k0 = seed[0], k1 = seed[1];
#pragma unroll
  for (int round = 0; round < 10; round++) {
    const Word even = static_cast<Word>(c0) * 0xd2511f53u;
    const Word odd = static_cast<Word>(c2) * 0xcd9e8d57u;
    c0 = static_cast<unsigned>(odd >> 32) ^ c1 ^ k0;
    c1 = static_cast<unsigned>(odd);
    c2 = static_cast<unsigned>(even >> 32) ^ c3 ^ k1;
    c3 = static_cast<unsigned>(even);
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  const Word bits = (static_cast<Word>(c0) << 32 | c1) >> 11;
  // Below 2^53 and a power of two: exact.
  return mul(static_cast<double>(bits), 1.0 / 9007199254740992.0);
}

// How to sample.
struct Draw {
  float temperature;
  unsigned top_k;
  double top_p;
  double min_p;

  // Whether min-p leaves a candidate. It does when it is no number.
  __device__ bool open(double weight) const { return !(min_p > 0.0) || weight >= min_p; }
};

__device__ double sum_of(const double *weights, int n) {
  double sum = 0.0;
  for (int i = 0; i < n; i++) sum = add(sum, weights[i]);
  return sum;
}

// How many candidates top-k and top-p leave, those that min-p drops counted or not; -1 when
// that is not certain.
__device__ int kept_of(const Draw &draw, const double *weights, int all, double max,
                       float log_sum_exp, int vocabulary) {
  const unsigned size = static_cast<unsigned>(vocabulary);
  const bool off = draw.top_k == 0 || draw.top_k >= size;
  const unsigned wanted = off ? size : draw.top_k;
  const double top_p = draw.top_p;
  if (wanted <= static_cast<unsigned>(all)) {
    const int n = static_cast<int>(wanted);
    if (!(top_p < 1.0)) return n;
    const double target = mul(top_p, sum_of(weights, n));
    double sum = 0.0;
    for (int i = 0; i < n; i++) {
      sum = add(sum, weights[i]);
      if (sum >= target) return i + 1;
    }
    return n;
  }
  int least = all, most = all + 1;
  if (top_p < 1.0) {
    const double log_sum = log_sum_exp;
    const double error = add(1.0 / 65536.0, mul(fabs(log_sum), 1.0 / 4194304.0));
    const double below = sub(max, log_sum);
    const double share = exp_of(below > 0.0 ? 0.0 : below);
    const double here = sum_of(weights, all);
    double sum = 0.0;
    for (int i = 0; i < all; i++) {
      sum = add(sum, weights[i]);
      const double part = mul(sum, share);
      if (mul(part, sub(1.0, error)) >= top_p) {
        most = i + 1;
        break;
      }
      const double up_to = off ? part : __ddiv_rn(sum, here);
      if (!(mul(up_to, add(1.0, error)) < top_p) && least == all) least = i + 1;
    }
    least = min(least, most);
  }
  const double edge = mul(draw.min_p, 1.0 - 1.0 / 1048576.0);
  const bool closed = draw.min_p > 0.0 && weights[all - 1] < edge;
  if (most > all && !closed) return -1;
  for (int i = least; i < min(most, all); i++) {
    if (draw.open(weights[i])) return -1;
  }
  return least;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(32)
    sample(ft::Site site, const int *control, const int *params, const int *positions,
           const int *ids, const float *values, const float *log_sum_exp, int *choices,
           int capacity, int outputs, int candidates, int vocabulary) {
  __shared__ double weights[kMost];
  __shared__ double drawn[kMost];
  __shared__ int tokens[kMost];
  __shared__ int drawn_tokens[kMost];
  const ft::Rows rows = ft::row_set(site, control, ft::kLogits, capacity, outputs);
  const int row = blockIdx.x, lane = threadIdx.x;
  if (row >= rows.count) return;
  ids += static_cast<long long>(row) * candidates;
  values += static_cast<long long>(row) * candidates;
  int *choice = choices + row;
  const int best = ids[0];
  Draw draw;
  draw.temperature = __int_as_float(params[kTemperature]);
  if (best < 0 || draw.temperature == 0.0f) {
    if (lane == 0) *choice = best < 0 ? kNotFinite : best;
    return;
  }
  draw.top_k = static_cast<unsigned>(params[kTopK]);
  draw.top_p = __int_as_float(params[kTopP]);
  draw.min_p = __int_as_float(params[kMinP]);
  const unsigned seed[2] = {static_cast<unsigned>(params[kSeed]),
                            static_cast<unsigned>(params[kSeed + 1])};
  const double max = values[0];
  double below[2] = {0.0, 0.0};
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int i = lane + 32 * half;
    if (i >= candidates) continue;
    below[half] = sub(values[i], max);
    weights[i] = exp_of(below[half]);
  }
  __syncwarp();
  const int kept =
      kept_of(draw, weights, candidates, max, log_sum_exp[row], vocabulary);
  if (kept < 0) {
    if (lane == 0) *choice = kUndecided;
    return;
  }

  // Those that are left, in ascending order of ids: each goes to the place that tells how
  // many come before it.
  bool left[2];
  int count = 0;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int i = lane + 32 * half;
    left[half] = i < kept && draw.open(weights[i]);
    if (i < candidates) tokens[i] = left[half] ? ids[i] : 0x7fffffff;
    count += __popc(__ballot_sync(0xffffffffu, left[half]));
  }
  __syncwarp();
  const double temperature = draw.temperature;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    if (!left[half]) continue;
    const int token = tokens[lane + 32 * half];
    int place = 0;
    for (int i = 0; i < kept; i++) place += tokens[i] < token;
    drawn[place] = exp_of(__ddiv_rn(below[half], temperature));
    drawn_tokens[place] = token;
  }
  __syncwarp();
  const Word position = static_cast<Word>(static_cast<long long>(positions[rows.first + row]) + 1);
  const double target = mul(uniform_of(seed, position), sum_of(drawn, count));
  double sum = 0.0;
  int chosen = kUndecided;
  for (int i = 0; i < count; i++) {
    sum = add(sum, drawn[i]);
    if (sum > target) {
      chosen = drawn_tokens[i];
      break;
    }
  }
  if (lane == 0) *choice = chosen;
}
