// The gates of the delta rule.
#pragma once

namespace ft::delta {

__device__ inline float softplus(float x) {
  // Past 20, e^-x is below half a unit of x.
  return x > 20.0f ? x : log1pf(expf(x));
}

}  // namespace ft::delta
