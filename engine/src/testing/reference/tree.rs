//! Token trees as sets of prefixes, each a list of ranks.

use std::cmp::Ordering;

/// A drafter's candidates: `ids` and `scores` are `[P, k]`.
#[derive(Clone, Debug)]
pub(crate) struct Candidates {
    pub(crate) k: usize,
    pub(crate) ids: Vec<i32>,
    pub(crate) scores: Vec<f32>,
    pub(crate) log_sum_exp: Option<Vec<f32>>,
    pub(crate) vocab: usize,
}

/// How a tree grows: the scores of each position's list, and the limits.
pub(crate) struct Growth {
    lists: Vec<Vec<f64>>,
    budget: usize,
    chain: usize,
}

type Ranks = Vec<usize>;

/// Higher score first, then the lexicographically smaller list of ranks.
fn order(a: &(f64, Ranks), b: &(f64, Ranks)) -> Ordering {
    let scores = b.0.partial_cmp(&a.0).unwrap_or(Ordering::Equal);
    scores.then_with(|| a.1.cmp(&b.1))
}

impl Candidates {
    /// Growth in a tree of `capacity` rows under `[budget, depth, positions, chain]`.
    pub(crate) fn growth(&self, capacity: usize, limits: [i32; 4]) -> Growth {
        let [budget, depth, positions, chain] = limits.map(|x| usize::try_from(x).unwrap_or(0));
        let valid = |at: usize| {
            let sum = self.log_sum_exp.as_ref().map_or(0.0, |sums| f64::from(sums[at / self.k]));
            let score = f64::from(self.scores[at]) - sum;
            let known = (0..self.vocab as i64).contains(&i64::from(self.ids[at]));
            (known && !score.is_nan() && score != f64::INFINITY).then_some(score)
        };
        let list = |d: usize| (d * self.k..(d + 1) * self.k).map_while(valid).collect::<Vec<_>>();
        let lists = (0..self.ids.len() / self.k).map(list);
        Growth {
            lists: lists.take(depth.min(positions)).take_while(|list| !list.is_empty()).collect(),
            budget: budget.min(capacity - 1),
            chain,
        }
    }
}

impl Growth {
    fn score(&self, ranks: &[usize]) -> Option<f64> {
        let mut sum = 0.0;
        for (position, &rank) in ranks.iter().enumerate() {
            sum += self.lists.get(position)?.get(rank)?;
        }
        Some(sum)
    }

    /// The rows that come first: row 0 and the most likely chain.
    fn seed(&self) -> Vec<Ranks> {
        let length = self.chain.min(self.budget).min(self.lists.len());
        (0..=length).map(|n| vec![0; n]).collect()
    }

    /// The rows in order: repeatedly the best of those whose parent and better
    /// sibling have been.
    pub(crate) fn rows(&self) -> Vec<Ranks> {
        let mut rows = self.seed();
        let mut open: Vec<(f64, Ranks)> = Vec::new();
        let mut add = vec![vec![0]];
        loop {
            open.extend(add.drain(..).filter_map(|r| Some((self.score(&r)?, r))));
            open.sort_by(order);
            if open.is_empty() || rows.len() > self.budget {
                return rows;
            }
            let (_, ranks) = open.remove(0);
            let (mut sibling, child) = (ranks.clone(), [&ranks[..], &[0]].concat());
            *sibling.last_mut().unwrap_or(&mut 0) += 1;
            add.extend([sibling, child]);
            if !rows.contains(&ranks) {
                rows.push(ranks);
            }
        }
    }

    /// The same from all prefixes there are, sorted; `None` when they are too many or
    /// when scores rise along a list or a path, so that the two differ in meaning.
    pub(crate) fn rows_by_enumeration(&self) -> Option<Vec<Ranks>> {
        const MOST: usize = 3000;
        let falling = |list: &Vec<f64>| list[0] <= 0.0 && list.is_sorted_by(|a, b| a >= b);
        if !self.lists.iter().all(falling) {
            return None;
        }
        let (mut all, mut level) = (Vec::new(), vec![Vec::new()]);
        for list in &self.lists {
            if level.len() * list.len() > MOST {
                return None;
            }
            let longer = |p: &Ranks| (0..list.len()).map(|r| [&p[..], &[r]].concat()).collect();
            level = level.iter().flat_map::<Vec<Ranks>, _>(longer).collect();
            all.extend(level.iter().filter_map(|r| Some((self.score(r)?, r.clone()))));
        }
        all.sort_by(order);
        let mut rows = self.seed();
        for (_, ranks) in all {
            if rows.len() <= self.budget && !rows.contains(&ranks) {
                rows.push(ranks);
            }
        }
        Some(rows)
    }
}

/// Rows of the path and the token after it.
pub(crate) fn walk(parents: &[i32], tokens: &[i32], choices: &[i32]) -> (Vec<usize>, i32) {
    let mut children = vec![Vec::new(); tokens.len()];
    for (row, &parent) in parents.iter().enumerate() {
        if let Some(parent) = usize::try_from(parent).ok().filter(|&parent| parent < row) {
            children[parent].push(row);
        }
    }
    let mut path = vec![0];
    while let Some(&row) = path.last() {
        let choice = choices[row];
        if choice < 0 {
            return (path, choice);
        }
        match children[row].iter().find(|&&child| tokens[child] == choice) {
            Some(&child) => path.push(child),
            None => return (path, choice),
        }
    }
    (path, -1)
}
