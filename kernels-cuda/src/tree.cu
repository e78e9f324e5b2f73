// Drafts and token trees: making rows ready, building a tree, walking it, moving on.
//
// Words in device memory may be anything: they are cut to what the operands hold, or the
// launch fails. Each kernel is one block; its bound is latency, some microseconds at most.
//
// draft_context: positions [C] of the committed tokens that the drafter has not seen.
// draft_block:   the pending token and mask tokens, tokens and positions [B].
// tree_build:    the prefixes of highest total log-probability, from ids and scores [P, k].
//                Sums in f64 from the first position on; ties by the list of ranks, so the
//                tree is the same everywhere, bit for bit. One warp takes the best of the
//                open prefixes, at most 128, until the budget is used up.
// tree_walk:     the target's choices through the tree; a lane has two rows.
// advance:       the cursor past the path.

#include "foretoken.cuh"
#include "path.cuh"
#include "tree.cuh"

namespace {

// Words of the cursor (kernel/tree.rs of the engine).
constexpr int kCommitted = 0, kPending = 1, kDrafted = 2;

// Words of the limits.
constexpr int kBudget = 0, kDepth = 1, kPositions = 2, kChain = 3;

// Words of a walk's result before the tokens.
constexpr int kAccepted = 0, kResultRows = 1, kNext = 2, kResultDepth = 3, kHeader = 4;

constexpr int kMaxInt = 0x7fffffff;

__device__ void write_control(int *control, int rows, int committed, int first, int logits) {
  control[ft::kRows] = rows;
  control[ft::kCommitted] = committed;
  control[ft::kLogitFirst] = first;
  control[ft::kLogitRows] = logits;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(256)
    draft_context(ft::Site site, int *cursor, int *control, int *positions, int capacity) {
  ft::after_previous();
  const int committed = cursor[kCommitted], drafted = cursor[kDrafted];
  __syncthreads();
  if (committed < 0 || drafted < 0 || drafted > committed) {
    return ft::fail(site, ft::Code::kBadCursor, min(committed, drafted));
  }
  const int rows = committed - drafted;
  if (rows > capacity) return ft::fail(site, ft::Code::kTooManyRows, rows);
  for (int row = threadIdx.x; row < rows; row += blockDim.x) positions[row] = drafted + row;
  if (threadIdx.x == 0) {
    write_control(control, rows, drafted, 0, 0);
    cursor[kDrafted] = committed;
  }
}

extern "C" __global__ void __launch_bounds__(256)
    draft_block(ft::Site site, const int *cursor, int mask_token, int *control, int *tokens,
                int *positions, int rows) {
  ft::after_previous();
  const int committed = cursor[kCommitted], pending = cursor[kPending];
  if (committed < 0) return ft::fail(site, ft::Code::kBadCursor, committed);
  if (committed > kMaxInt - (rows - 1)) {
    return ft::fail(site, ft::Code::kPastPositions, committed);
  }
  for (int row = threadIdx.x; row < rows; row += blockDim.x) {
    tokens[row] = row == 0 ? pending : mask_token;
    positions[row] = committed + row;
  }
  if (threadIdx.x == 0) write_control(control, rows, committed, 1, rows - 1);
}

extern "C" __global__ void __launch_bounds__(32)
    tree_build(ft::Site site, const int *cursor, const int *limits, const int *ids,
               const float *scores, const float *log_sum_exp, int drafted, int k,
               unsigned vocabulary, int *control, int *tokens, int *positions, int *parents,
               int *depths, int *masks, int capacity) {
  __shared__ ft::Growth tree;
  const int lane = threadIdx.x;
  ft::after_previous();
  const int committed = cursor[kCommitted], pending = cursor[kPending];
  if (committed < 0) return ft::fail(site, ft::Code::kBadCursor, committed);
  const int budget = min(max(limits[kBudget], 0), capacity - 1);
  const int most = min(max(limits[kPositions], 0), drafted);
  const int depth = min(max(limits[kDepth], 0), most);
  const int chain = max(limits[kChain], 0);

  const ft::Candidates candidates{ids, scores, log_sum_exp, k, vocabulary};
  // No prefix goes deeper than there are rows, or has a higher rank than prefixes are taken.
  const int listed = min(depth, ft::kTreeRows), width = min(k, ft::kOpen);
  const bool ahead = listed * width <= ft::kScoreTable;
  if (ahead) {
    for (int i = lane; i < listed * width; i += 32) {
      tree.table[i] = candidates.score(i / width, i % width);
    }
  }
  if (lane == 0) {
    tree.sums[0] = 0.0;
    tree.masks[0] = 1;
    tree.parents[0] = -1;
    tree.depths[0] = 0;
    tree.ranks[0] = 0;
  }
  __syncwarp();

  // The score that a prefix adds to its parent's row; NaN for none.
  const auto score = [&](int parent, int rank) {
    const int position = tree.depths[parent];
    if (position >= depth || rank >= width) return __longlong_as_double(0x7ff8000000000000ll);
    return ahead ? tree.table[position * width + rank] : candidates.score(position, rank);
  };
  int rows = 1, open = 0;
  // Lane 0 alone writes the tree; all lanes count along.
  const auto take = [&](int parent, int rank, double sum) {
    if (lane == 0) {
      tree.sums[rows] = sum;
      tree.masks[rows] = tree.masks[parent] | 1ull << rows;
      tree.parents[rows] = parent;
      tree.depths[rows] = tree.depths[parent] + 1;
      tree.ranks[rows] = rank;
    }
    const int above = tree.depths[parent];
    for (int i = lane; i < above; i += 32) tree.paths[rows][i] = tree.paths[parent][i];
    if (lane == 0) tree.paths[rows][above] = static_cast<unsigned char>(rank);
    __syncwarp();
    return rows++;
  };
  const auto push = [&](int parent, int rank) {
    const double term = score(parent, rank);
    if (!(term == term)) return;
    if (lane == 0) {
      tree.open_sums[open] = __dadd_rn(tree.sums[parent], term);
      tree.open_parents[open] = static_cast<unsigned char>(parent);
      tree.open_ranks[open] = static_cast<unsigned char>(rank);
    }
    open++;
  };

  while (rows <= min(chain, budget)) {
    const double term = score(rows - 1, 0);
    if (!(term == term)) break;
    take(rows - 1, 0, __dadd_rn(tree.sums[rows - 1], term));
  }
  const int seeds = rows - 1;
  push(0, 0);
  __syncwarp();
  while (rows <= budget && open > 0) {
    const int place = ft::first_open(tree, open);
    const int parent = tree.open_parents[place], rank = tree.open_ranks[place];
    const double sum = tree.open_sums[place];
    __syncwarp();
    open--;
    if (lane == 0 && place != open) {
      tree.open_sums[place] = tree.open_sums[open];
      tree.open_parents[place] = tree.open_parents[open];
      tree.open_ranks[place] = tree.open_ranks[open];
    }
    __syncwarp();
    // Rows of the chain have the number of their depth, and are there already.
    const int level = tree.depths[parent] + 1;
    const bool seeded = rank == 0 && level <= seeds && parent + 1 == level;
    const int row = seeded ? level : take(parent, rank, sum);
    push(parent, rank + 1);
    push(row, 0);
    __syncwarp();
  }

  int deepest = 0;
  for (int row = lane; row < rows; row += 32) deepest = max(deepest, tree.depths[row]);
  for (int distance = 16; distance > 0; distance /= 2) {
    deepest = max(deepest, __shfl_xor_sync(0xffffffffu, deepest, distance));
  }
  if (committed > kMaxInt - deepest) return ft::fail(site, ft::Code::kPastPositions, committed);
  for (int row = lane; row < rows; row += 32) {
    const int level = tree.depths[row];
    const unsigned long long mask = tree.masks[row];
    const long long at = (level - 1) * static_cast<long long>(k) + tree.ranks[row];
    tokens[row] = row == 0 ? pending : ids[at];
    positions[row] = committed + level;
    parents[row] = tree.parents[row];
    depths[row] = level;
    masks[2 * row] = static_cast<int>(mask & 0xffffffffu);
    masks[2 * row + 1] = static_cast<int>(mask >> 32);
  }
  if (lane == 0) write_control(control, rows, committed, 0, rows);
}

extern "C" __global__ void __launch_bounds__(32)
    tree_walk(ft::Site site, const int *control, const int *tokens, const int *parents,
              const int *depths, const int *choices, int *path, int *result, int capacity) {
  const int rows = ft::checked_rows(site, control, capacity);
  if (rows < 0) return;
  if (rows == 0) return ft::fail(site, ft::Code::kNoRows, rows);
  const int lane = threadIdx.x;
  int token[2], parent[2], choice[2], deepest = -kMaxInt - 1;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int row = lane + 32 * half;
    const bool live = row < rows;
    token[half] = live ? tokens[row] : 0;
    // Row -1 is nobody's parent.
    parent[half] = live && parents[row] < row ? parents[row] : -1;
    choice[half] = live ? choices[row] : -1;
    if (live) deepest = max(deepest, depths[row]);
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    deepest = max(deepest, __shfl_xor_sync(0xffffffffu, deepest, distance));
  }
  const auto of = [](const int (&of_lane)[2], int row) {
    return __shfl_sync(0xffffffffu, row < 32 ? of_lane[0] : of_lane[1], row % 32);
  };
  int row = 0, accepted = 0, next;
  // Children come after their parent, so this ends, garbage or not.
  while (true) {
    const int here = of(token, row);
    if (lane == 0) {
      result[kHeader + accepted] = here;
      path[1 + accepted] = row;
    }
    accepted++;
    next = of(choice, row);
    if (next < 0) break;
    const unsigned low = __ballot_sync(0xffffffffu, parent[0] == row && token[0] == next);
    const unsigned high = __ballot_sync(0xffffffffu, parent[1] == row && token[1] == next);
    if ((low | high) == 0) break;
    row = low ? __ffs(low) - 1 : __ffs(high) + 31;
  }
  if (lane == 0) {
    path[0] = accepted;
    result[kAccepted] = accepted;
    result[kResultRows] = rows;
    result[kNext] = next;
    result[kResultDepth] = deepest;
  }
}

extern "C" __global__ void advance(ft::Site site, const int *control, const int *path,
                                   const int *result, int *cursor, int capacity) {
  const ft::Counts counts = ft::checked_counts(site, control, capacity);
  const int rows = counts.rows, committed = counts.committed;
  if (rows < 0) return;
  const int accepted = path[0];
  if (accepted < 1 || accepted > rows) return ft::fail(site, ft::Code::kBadPath, accepted);
  if (committed > kMaxInt - accepted) return ft::fail(site, ft::Code::kPastPositions, committed);
  cursor[kCommitted] = committed + accepted;
  cursor[kPending] = result[kNext];
}
