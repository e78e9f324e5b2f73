// Products with the weight types that have no decoder of their own in fragment.cuh: one
// kernel for every number of rows of a step, and one for more. See linear.cuh.

#include "linear_prefill.cuh"

// Its decoder needs the registers.
template <>
constexpr int ft::linear::kPairsAtOnce<ft::fragment::Decoded<ft::quant::NVFP4>> = 1;

#define BOTH(type, Type)                                          \
  FT_LINEAR_STEP(type, 64, ft::fragment::Decoded<ft::quant::Type>) \
  FT_LINEAR_PREFILL(type, ft::linear::Rows16<ft::fragment::Decoded<ft::quant::Type>>)

BOTH(q4_0, Q4_0)
BOTH(q4_1, Q4_1)
BOTH(q5_0, Q5_0)
BOTH(q5_1, Q5_1)
BOTH(q2_k, Q2_K)
BOTH(q3_k, Q3_K)
BOTH(iq4_nl, IQ4_NL)
BOTH(iq4_xs, IQ4_XS)
BOTH(mxfp4, MXFP4)
BOTH(nvfp4, NVFP4)
