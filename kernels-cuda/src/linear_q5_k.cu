// Products with Q5_K weights: see linear.cuh and linear_prefill.cuh.

#include "linear_prefill.cuh"

FT_LINEAR_STEPS(q5_k, ft::fragment::Q5_K<true>, ft::fragment::Q5_K<false>)
FT_LINEAR_PREFILL(q5_k, ft::fragment::Q5_K<false>)
