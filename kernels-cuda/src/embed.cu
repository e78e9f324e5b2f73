// Rows of the embedding table, decoded to f32.
//
// out[i, :] = decode(table[clamp(tokens[i]), :]) * scale; tokens [M] i32, out [M, D] f32, the
// table in its stored form, rows of `row_bytes` one after the other. One block to a row, one
// thread to every 256th element, so that stores are whole lines. Bound: memory for prompts,
// one latency for a step.

#include "foretoken.cuh"
#include "quant.cuh"

namespace {

struct F32 {
  __device__ static float at(const uint8_t *row, int i) {
    return reinterpret_cast<const float *>(row)[i];
  }
};

struct F16 {
  __device__ static float at(const uint8_t *row, int i) {
    return ft::quant::half_to_float(reinterpret_cast<const uint16_t *>(row)[i]);
  }
};

struct BF16 {
  __device__ static float at(const uint8_t *row, int i) {
    return ft::quant::bfloat_to_float(reinterpret_cast<const uint16_t *>(row)[i]);
  }
};

template <class Type>
struct Blocks {
  __device__ static float at(const uint8_t *row, int i) {
    const uint8_t *block = row + static_cast<long long>(i / Type::kElements) * Type::kBytes;
    return ft::quant::decode<Type>(block, i % Type::kElements);
  }
};

template <class Table>
__device__ void gather(ft::Site site, const int *control, const int *tokens,
                       const uint8_t *table, float *out, int capacity, int entries, int width,
                       long long row_bytes, float scale) {
  const int rows = ft::live_rows(site, control, capacity);
  const int row = blockIdx.x;
  if (row >= rows) return;
  const int token = max(0, min(tokens[row], entries - 1));
  const uint8_t *from = table + token * row_bytes;
  float *to = out + static_cast<long long>(row) * width;
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    to[i] = __fmul_rn(Table::at(from, i), scale);
  }
}

}  // namespace

#define FT_EMBED(NAME, TABLE)                                                              \
  extern "C" __global__ void __launch_bounds__(256)                                       \
      embed_##NAME(ft::Site site, const int *control, const int *tokens,                  \
                   const uint8_t *table, float *out, int capacity, int entries, int width, \
                   long long row_bytes, float scale) {                                     \
    gather<TABLE>(site, control, tokens, table, out, capacity, entries, width, row_bytes,  \
                  scale);                                                                  \
  }

FT_EMBED(f32, F32)
FT_EMBED(f16, F16)
FT_EMBED(bf16, BF16)
FT_EMBED(q4_0, Blocks<ft::quant::Q4_0>)
FT_EMBED(q4_1, Blocks<ft::quant::Q4_1>)
FT_EMBED(q5_0, Blocks<ft::quant::Q5_0>)
FT_EMBED(q5_1, Blocks<ft::quant::Q5_1>)
FT_EMBED(q8_0, Blocks<ft::quant::Q8_0>)
FT_EMBED(q2_k, Blocks<ft::quant::Q2_K>)
FT_EMBED(q3_k, Blocks<ft::quant::Q3_K>)
FT_EMBED(q4_k, Blocks<ft::quant::Q4_K>)
FT_EMBED(q5_k, Blocks<ft::quant::Q5_K>)
FT_EMBED(q6_k, Blocks<ft::quant::Q6_K>)
FT_EMBED(iq4_nl, Blocks<ft::quant::IQ4_NL>)
FT_EMBED(iq4_xs, Blocks<ft::quant::IQ4_XS>)
FT_EMBED(mxfp4, Blocks<ft::quant::MXFP4>)
FT_EMBED(nvfp4, Blocks<ft::quant::NVFP4>)
