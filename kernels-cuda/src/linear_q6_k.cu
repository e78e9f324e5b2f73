// Products with Q6_K weights: see linear.cuh and linear_prefill.cuh.

#include "linear_prefill.cuh"

FT_LINEAR_STEPS(q6_k, ft::fragment::Q6_K, ft::fragment::Q6_K)
FT_LINEAR_PREFILL(q6_k, ft::fragment::Q6_K)
