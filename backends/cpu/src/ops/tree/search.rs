//! The prefixes of highest score, best first.
//!
//! A heap holds the prefixes that may come next: the best one not taken yet under
//! each row, and for each row taken its next sibling. Taking one puts at most two in
//! its place, so the heap never holds more than one entry above the rows taken.

use std::cmp::Ordering;

use foretoken::kernel::TreeRows;

/// Most rows, row 0 among them.
const ROWS: usize = TreeRows::MAX;

/// A prefix: the row it continues and the candidate it ends with.
#[derive(Clone, Copy, Default)]
pub(super) struct Node {
    pub(super) parent: usize,
    /// Position of its last token, counted from 1; 0 for row 0.
    pub(super) depth: usize,
    pub(super) rank: usize,
    /// Its score.
    sum: f64,
}

/// How far a tree may grow.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// Rows besides row 0, below [`TreeRows::MAX`].
    pub(super) budget: usize,
    pub(super) depth: usize,
    /// Rows of the most likely chain that come first.
    pub(super) chain: usize,
}

/// Rows in the order in which they were taken, row 0 first.
pub(super) struct Tree {
    nodes: [Node; ROWS],
    count: usize,
}

impl Tree {
    /// Grows a tree. `score` gives the score of a candidate by position (from 0) and
    /// rank, or `None` past the end of the position's list; it is asked for positions
    /// below `limits.depth` alone.
    pub(super) fn grow(limits: Limits, score: impl Fn(usize, usize) -> Option<f64>) -> Self {
        let mut tree = Self { nodes: [Node::default(); ROWS], count: 1 };
        let next = |tree: &Self, parent: usize, rank: usize| -> Option<Node> {
            let above = tree.nodes[parent];
            if above.depth >= limits.depth {
                return None;
            }
            let sum = above.sum + score(above.depth, rank)?;
            Some(Node { parent, depth: above.depth + 1, rank, sum })
        };
        let budget = limits.budget.min(ROWS - 1);
        while tree.count <= limits.chain.min(budget) {
            let Some(node) = next(&tree, tree.count - 1, 0) else { break };
            tree.take(node);
        }
        let chain = tree.count - 1;
        let mut heap = Heap { nodes: [Node::default(); 2 * ROWS], len: 0 };
        heap.push(&tree, next(&tree, 0, 0));
        while tree.count <= budget {
            let Some(node) = heap.pop(&tree) else { break };
            // Rows of the chain have the number of their depth.
            let seeded = node.rank == 0 && node.depth <= chain && node.parent + 1 == node.depth;
            let row = if seeded { node.depth } else { tree.take(node) };
            heap.push(&tree, next(&tree, node.parent, node.rank + 1));
            heap.push(&tree, next(&tree, row, 0));
        }
        tree
    }

    /// The rows.
    pub(super) fn rows(&self) -> &[Node] {
        &self.nodes[..self.count]
    }

    fn take(&mut self, node: Node) -> usize {
        let row = self.count;
        self.nodes[row] = node;
        self.count += 1;
        row
    }

    /// Whether one prefix goes before another.
    fn before(&self, one: &Node, other: &Node) -> bool {
        match one.sum.partial_cmp(&other.sum) {
            Some(Ordering::Greater) => true,
            Some(Ordering::Less) => false,
            // There are no NaNs: no term is one, or plus infinity.
            _ => {
                let mut room = [[0; ROWS]; 2];
                let [a, b] = &mut room;
                self.ranks(one, a) < self.ranks(other, b)
            }
        }
    }

    /// The ranks of a prefix's candidates, in order of depth.
    fn ranks<'a>(&self, node: &Node, room: &'a mut [usize; ROWS]) -> &'a [usize] {
        // At most 64 deep: a prefix that continues the last of 64 rows.
        let (mut at, ranks) = (*node, &mut room[..node.depth]);
        for rank in ranks.iter_mut().rev() {
            *rank = at.rank;
            at = self.nodes[at.parent];
        }
        ranks
    }
}

/// A binary heap in fixed memory.
struct Heap {
    nodes: [Node; 2 * ROWS],
    len: usize,
}

impl Heap {
    fn push(&mut self, tree: &Tree, node: Option<Node>) {
        let Some(node) = node else { return };
        let mut at = self.len;
        self.nodes[at] = node;
        self.len += 1;
        while at > 0 {
            let above = (at - 1) / 2;
            if !tree.before(&self.nodes[at], &self.nodes[above]) {
                break;
            }
            self.nodes.swap(at, above);
            at = above;
        }
    }

    fn pop(&mut self, tree: &Tree) -> Option<Node> {
        self.len = self.len.checked_sub(1)?;
        self.nodes.swap(0, self.len);
        let (left, mut at) = (&mut self.nodes[..=self.len], 0);
        let end = left.len() - 1;
        loop {
            let (a, b) = (2 * at + 1, 2 * at + 2);
            if a >= end {
                break;
            }
            let below = if b < end && tree.before(&left[b], &left[a]) { b } else { a };
            if !tree.before(&left[below], &left[at]) {
                break;
            }
            left.swap(at, below);
            at = below;
        }
        Some(left[end])
    }
}
