//! Statistics of speculation as JSON.

use std::collections::BTreeMap;

use foretoken::speculate::SpecStats;
use serde::Serialize;

/// What a request's steps drafted and what came of it.
#[derive(Debug, Serialize)]
pub(super) struct SpeculationReport {
    speculative_steps: u64,
    /// Steps for which the drafter proposed nothing.
    nothing_proposed: u64,
    /// By drafted position: how often the position before was accepted, and it.
    positions: Vec<Position>,
    draft_s: f64,
    verify_s: f64,
    commit_s: f64,
    /// Steps by what was chosen.
    choices: BTreeMap<String, u64>,
    /// Steps by why it was chosen.
    reasons: BTreeMap<&'static str, u64>,
}

/// Acceptance at one position.
#[derive(Debug, Serialize)]
struct Position {
    tried: u64,
    accepted: u64,
}

impl From<&SpecStats> for SpeculationReport {
    fn from(stats: &SpecStats) -> Self {
        let position = |p: &foretoken::speculate::PositionCount| Position {
            tried: p.tried,
            accepted: p.accepted,
        };
        Self {
            speculative_steps: stats.speculative_steps,
            nothing_proposed: stats.nothing_proposed,
            positions: stats.positions.iter().map(position).collect(),
            draft_s: stats.draft.as_secs_f64(),
            verify_s: stats.verify.as_secs_f64(),
            commit_s: stats.commit.as_secs_f64(),
            choices: stats.choices.iter().map(|(c, n)| (c.to_string(), *n)).collect(),
            reasons: stats.reasons.iter().map(|(r, n)| (r.name(), *n)).collect(),
        }
    }
}
