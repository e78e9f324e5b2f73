//! Drafters for tests.

use foretoken::Result;
use foretoken::device::Device;
use foretoken::kernel::Op;
use foretoken::speculate::{Candidates, DraftSite, DraftSizes, Drafter};

use super::support::Random;

/// What a scripted drafter proposes.
#[derive(Clone, Debug)]
pub(crate) enum Script {
    /// The token at each position of the sequence, at a random rank in this many percent
    /// of the positions, among random others.
    Knows(Vec<u32>, usize),
    /// Any ids at all, in and out of the vocabulary, with any scores at all.
    Garbage,
    /// Nothing.
    Silent,
}

/// A drafter on the host whose script can be changed between requests.
pub(crate) struct Scripted {
    pub(crate) script: std::sync::Arc<std::sync::Mutex<Script>>,
    random: Random,
}

impl Scripted {
    pub(crate) fn new(script: &std::sync::Arc<std::sync::Mutex<Script>>) -> Box<Self> {
        Box::new(Self { script: script.clone(), random: Random(11) })
    }
}

impl Drafter for Scripted {
    fn name(&self) -> &str {
        "scripted"
    }

    fn positions(&self) -> usize {
        15
    }

    fn bytes(&self, _: &DraftSizes, _: &dyn Device) -> Result<u64> {
        Ok(0)
    }

    fn attach(&mut self, _: &DraftSite<'_>) -> Result<()> {
        Ok(())
    }

    fn context(&self, _: usize) -> Result<Vec<Op>> {
        Ok(Vec::new())
    }

    fn proposal(&self) -> Result<Vec<Op>> {
        Ok(Vec::new())
    }

    fn propose(&mut self, history: &[u32], candidates: &mut Candidates<'_>) -> usize {
        let (r, width) = (&mut self.random, candidates.width);
        let rows = candidates.ids.chunks_exact_mut(width);
        let rows = rows.zip(candidates.scores.chunks_exact_mut(width));
        match &*self.script.lock().unwrap() {
            Script::Silent => 0,
            Script::Garbage => {
                let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 1e30];
                for (ids, scores) in rows {
                    for (id, score) in ids.iter_mut().zip(scores) {
                        *id = r.pick(&[-1, i32::MIN, i32::MAX, 8192, 8191, 0, 258, 310, 77]);
                        let any = r.below(1000) as f32 / -50.0;
                        *score = if r.chance(10) { r.pick(&odd) } else { any };
                    }
                }
                r.below(40)
            }
            Script::Knows(answer, percent) => {
                for (position, (ids, scores)) in rows.enumerate() {
                    for (rank, (id, score)) in ids.iter_mut().zip(scores).enumerate() {
                        *id = r.below(8192) as i32;
                        *score = -0.3 * (rank + 1) as f32 - r.below(100) as f32 / 1000.0;
                    }
                    let known = answer.get(history.len() + position);
                    if let (Some(&token), true) = (known, r.chance(*percent)) {
                        let most = if r.chance(60) { 1 } else { width.min(4) };
                        ids[r.below(most)] = token as i32;
                    }
                }
                self.positions()
            }
        }
    }
}
