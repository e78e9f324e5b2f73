// Products with F16 weights: see linear.cuh and linear_prefill.cuh.

#include "linear_prefill.cuh"

FT_LINEAR_STEPS(f16, ft::fragment::Scalars<false>, ft::fragment::Scalars<false>)
FT_LINEAR_PREFILL(f16, ft::fragment::Scalars<false>)
