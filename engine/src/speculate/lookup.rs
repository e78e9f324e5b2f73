//! Drafting by looking up: where the last tokens occurred before, what followed them
//! there is proposed again.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use super::{Candidates, DraftSite, DraftSizes, Drafter, SpecLimits, SpeculateFault};
use crate::device::Device;
use crate::error::Result;
use crate::kernel::Op;

/// Longest n-gram that can be asked for.
const LONGEST: usize = 16;
/// Tokens indexed at most; past it the older half is forgotten.
const WINDOW: usize = 1 << 18;
/// Earlier occurrences looked at for other continuations.
const OTHERS: usize = 8;
/// How far back a match is measured.
const MEASURE: usize = 32;
/// Tokens of a match at which the chance of its next token is put at a half.
const EVEN: f64 = 1.5;

/// An odd factor with its bits well mixed (2^64 over the golden ratio).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// Marks the end of a list of occurrences.
const NONE: u32 = u32::MAX;

/// Occurrences of the n-grams of one length. Positions are those after an n-gram, counted
/// from the window's start.
#[derive(Debug)]
struct Index {
    /// The length.
    n: usize,
    /// Newest position by hash.
    newest: HashMap<u64, u32>,
    /// Entry `p`: the position before `p` with the same hash.
    before: Vec<u32>,
}

impl Index {
    fn new(n: usize) -> Self {
        Self { n, newest: HashMap::new(), before: vec![NONE] }
    }

    fn clear(&mut self) {
        self.newest.clear();
        self.before.clear();
        // Position 0 is after nothing.
        self.before.push(NONE);
    }

    /// Adds the position after these tokens, which is that of the next entry.
    fn push(&mut self, tokens: &[u32]) {
        let gram = tokens.len().checked_sub(self.n).and_then(|at| tokens.get(at..));
        let position = u32::try_from(self.before.len()).unwrap_or(NONE);
        let before = gram.and_then(|gram| self.newest.insert(hash(gram), position));
        self.before.push(before.unwrap_or(NONE));
    }

    /// Positions after what has this n-gram's hash, newest first.
    fn occurrences(&self, gram: &[u32]) -> impl Iterator<Item = usize> + '_ {
        let newest = self.newest.get(&hash(gram)).copied();
        std::iter::successors(newest.map(|p| p as usize), |&p| {
            self.before.get(p).filter(|&&before| before != NONE).map(|&before| before as usize)
        })
    }
}

/// Well spread but not keyed: a text made to collide costs itself its matches, nothing
/// more, since what is found is compared with the tokens. The map has keys of its own.
fn hash(gram: &[u32]) -> u64 {
    gram.iter().fold(0, |hash: u64, &id| {
        let wide = u128::from(hash ^ (u64::from(id) + 1)) * u128::from(SPREAD);
        (wide >> 64) as u64 ^ wide as u64
    })
}

/// Proposes what followed the longest suffix of the request's own tokens that occurred
/// before (prompt lookup; the newest occurrence first).
///
/// Costs no device time and needs no second model; good for text that repeats its prompt,
/// as in editing and quoting. Where older occurrences went on differently, their tokens
/// are further candidates at the first position that differs. Scores are guesses from the
/// length of the match.
#[derive(Debug)]
pub struct PromptLookup {
    positions: usize,
    window: usize,
    /// The history from the window's start, as far as it is indexed.
    seen: Vec<u32>,
    /// Where in the history the window starts.
    start: usize,
    /// One for each length of n-gram, shortest first.
    indexes: Vec<Index>,
}

impl PromptLookup {
    /// Shortest and longest n-gram looked for by default. Single tokens match too much.
    pub const GRAMS: RangeInclusive<usize> = 2..=4;

    /// A lookup that proposes at most this many positions, 1 to 63.
    ///
    /// # Errors
    /// `BadDraftLen`.
    pub fn new(positions: usize) -> Result<Self, SpeculateFault> {
        Self::with_grams(positions, Self::GRAMS)
    }

    /// The same with n-grams of these lengths, within 1 to 16.
    ///
    /// # Errors
    /// `BadDraftLen`, `BadNgram`.
    pub fn with_grams(
        positions: usize,
        grams: RangeInclusive<usize>,
    ) -> Result<Self, SpeculateFault> {
        let max = SpecLimits::MAX;
        if !(1..=max).contains(&positions) {
            return Err(SpeculateFault::BadDraftLen { asked: positions, max });
        }
        let (min, max) = (*grams.start(), *grams.end());
        if min == 0 || min > max || max > LONGEST {
            return Err(SpeculateFault::BadNgram { min, max, limit: LONGEST });
        }
        let indexes = grams.map(Index::new).collect();
        Ok(Self { positions, window: WINDOW, seen: Vec::new(), start: 0, indexes })
    }

    /// Brings the index up to the last token but one: what ends with the last token is
    /// what is looked for.
    fn follow(&mut self, history: &[u32]) {
        let end = history.len().saturating_sub(1);
        // Comparing all costs a few microseconds per 100 000 tokens, less than an index
        // that is wrong for the request.
        let known = history.get(self.start..).is_some_and(|h| h.starts_with(&self.seen));
        if !known || self.start + self.seen.len() > end {
            self.restart(0);
        }
        if end - self.start > self.window {
            self.restart(end - self.window / 2);
        }
        for &id in history.get(self.start + self.seen.len()..end).unwrap_or_default() {
            self.seen.push(id);
            self.indexes.iter_mut().for_each(|index| index.push(&self.seen));
        }
    }

    fn restart(&mut self, start: usize) {
        self.start = start;
        self.seen.clear();
        self.indexes.iter_mut().for_each(Index::clear);
    }

    /// Positions in `recent` after the longest n-gram that its end repeats, newest first.
    fn matches<'a>(&'a self, recent: &'a [u32]) -> impl Iterator<Item = usize> + 'a {
        let longest = self.indexes.iter().rev().filter_map(move |index| {
            let n = index.n;
            let gram = recent.get(recent.len().checked_sub(n)?..)?;
            let mut found = index.occurrences(gram).filter(move |&after| {
                after.checked_sub(n).and_then(|at| recent.get(at..after)) == Some(gram)
            });
            found.next().map(|first| std::iter::once(first).chain(found))
        });
        longest.take(1).flatten()
    }
}

/// The token `ahead` places after `after`; past the end the text repeats from `after` on.
fn continued(recent: &[u32], after: usize, ahead: usize) -> Option<u32> {
    let period = recent.len().checked_sub(after).filter(|&period| period > 0)?;
    recent.get(after + ahead % period).copied()
}

/// How many tokens before `after` are those at the end, counting to 32.
fn common(recent: &[u32], after: usize) -> usize {
    let earlier = recent.get(..after).unwrap_or_default();
    let pairs = earlier.iter().rev().zip(recent.iter().rev());
    pairs.take(MEASURE).take_while(|(a, b)| a == b).count()
}

impl Drafter for PromptLookup {
    fn name(&self) -> &str {
        "lookup"
    }

    fn positions(&self) -> usize {
        self.positions
    }

    fn bytes(&self, _sizes: &DraftSizes, _device: &dyn Device) -> Result<u64> {
        Ok(0)
    }

    fn attach(&mut self, _site: &DraftSite<'_>) -> Result<()> {
        Ok(())
    }

    fn context(&self, _rows: usize) -> Result<Vec<Op>> {
        Ok(Vec::new())
    }

    fn proposal(&self) -> Result<Vec<Op>> {
        Ok(Vec::new())
    }

    fn propose(&mut self, history: &[u32], candidates: &mut Candidates<'_>) -> usize {
        candidates.ids.fill(-1);
        candidates.scores.fill(f32::NEG_INFINITY);
        self.follow(history);
        let recent = history.get(self.start..).unwrap_or_default();
        let mut matches = self.matches(recent);
        let Some(first) = matches.next() else { return 0 };
        let length = common(recent, first) as f64;
        let mut table = Table::new(candidates, length / (length + EVEN));
        let mut filled = 0;
        while filled < self.positions
            && continued(recent, first, filled).is_some_and(|id| table.add(filled, id))
        {
            filled += 1;
        }
        for other in matches.take(OTHERS) {
            let ids = |ahead| (continued(recent, first, ahead), continued(recent, other, ahead));
            if let Some(ahead) = (0..filled).find(|&ahead| ids(ahead).0 != ids(ahead).1)
                && let Some(id) = ids(ahead).1
            {
                table.add(ahead, id);
            }
        }
        filled
    }
}

/// The candidates' rows, with the chance of the first of each.
struct Table<'a, 'b> {
    candidates: &'a mut Candidates<'b>,
    chance: f64,
}

impl<'a, 'b> Table<'a, 'b> {
    fn new(candidates: &'a mut Candidates<'b>, chance: f64) -> Self {
        Self { candidates, chance }
    }

    /// Adds a token to a position as its next rank, unless it is there; whether there was
    /// a place for it. Each further rank gets half of the chance that is left.
    fn add(&mut self, position: usize, id: u32) -> bool {
        let Ok(id) = i32::try_from(id) else { return false };
        let width = self.candidates.width;
        if width == 0 {
            return false;
        }
        let row = |len: usize| {
            let from = position.checked_mul(width)?;
            let to = from.checked_add(width)?;
            (to <= len).then_some(from..to)
        };
        let ids = row(self.candidates.ids.len()).and_then(|row| self.candidates.ids.get_mut(row));
        let scores =
            row(self.candidates.scores.len()).and_then(|row| self.candidates.scores.get_mut(row));
        let (Some(ids), Some(scores)) = (ids, scores) else { return false };
        if ids.contains(&id) {
            return false;
        }
        let mut chance = self.chance;
        for (rank, (slot, score)) in ids.iter_mut().zip(scores).enumerate() {
            if rank > 0 {
                chance = (1.0 - self.chance) * 0.5f64.powi(rank as i32);
            }
            if *slot < 0 {
                (*slot, *score) = (id, chance.ln() as f32);
                return true;
            }
        }
        false
    }
}
