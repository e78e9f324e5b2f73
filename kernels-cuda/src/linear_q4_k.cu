// Products with Q4_K weights: see linear.cuh and linear_prefill.cuh.

#include "linear_prefill.cuh"

FT_LINEAR_STEPS(q4_k, ft::fragment::Q4_K<true>, ft::fragment::Q4_K<false>)
FT_LINEAR_PREFILL(q4_k, ft::fragment::Q4_K<false>)
