// Weights of every type to images, on sm_90a: see linear_image.cuh.

#include "linear_image.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

#define FT_LINEAR_UNPACK(type, ...)                                                               \
  extern "C" __global__ __launch_bounds__(64) void linear_unpack_##type##_sm90a(                  \
      ft::Site, const uint8_t *weight, long long row_bytes, int n, int k, int begin, int padded,  \
      uint8_t *image) {                                                                           \
    const ft::linear::Operands o{nullptr, nullptr, weight, row_bytes, n, k, 0, 0.0f, 0, nullptr}; \
    ft::linear::unpack<__VA_ARGS__>(o, begin, padded, image);                                     \
  }
#define FT_LINEAR_UNPACK_BRICKS(type, ...) \
  FT_LINEAR_UNPACK(type, ft::linear::Bricks16<ft::brick::__VA_ARGS__>)
#define FT_LINEAR_UNPACK_ROWS(type, Type) \
  FT_LINEAR_UNPACK(type, ft::linear::Rows16<ft::fragment::Decoded<ft::quant::Type>>)

FT_LINEAR_UNPACK_BRICKS(q4_k, Q4_K)
FT_LINEAR_UNPACK_BRICKS(q5_k, Q5_K)
FT_LINEAR_UNPACK_BRICKS(q6_k, Q6_K)
FT_LINEAR_UNPACK_BRICKS(q8_0, Q8_0)
FT_LINEAR_UNPACK_BRICKS(f16, Scalars<false>)
FT_LINEAR_UNPACK_BRICKS(bf16, Scalars<true>)
FT_LINEAR_UNPACK_ROWS(q4_0, Q4_0)
FT_LINEAR_UNPACK_ROWS(q4_1, Q4_1)
FT_LINEAR_UNPACK_ROWS(q5_0, Q5_0)
FT_LINEAR_UNPACK_ROWS(q5_1, Q5_1)
FT_LINEAR_UNPACK_ROWS(q2_k, Q2_K)
FT_LINEAR_UNPACK_ROWS(q3_k, Q3_K)
FT_LINEAR_UNPACK_ROWS(iq4_nl, IQ4_NL)
FT_LINEAR_UNPACK_ROWS(iq4_xs, IQ4_XS)
FT_LINEAR_UNPACK_ROWS(mxfp4, MXFP4)
FT_LINEAR_UNPACK_ROWS(nvfp4, NVFP4)

#endif
