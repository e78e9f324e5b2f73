// Products with BF16 weights: see linear.cuh and linear_prefill.cuh.

#include "linear_prefill.cuh"

FT_LINEAR_STEPS(bf16, ft::fragment::Scalars<true>, ft::fragment::Scalars<true>)
FT_LINEAR_PREFILL(bf16, ft::fragment::Scalars<true>)
