//! Sampling from all logits of a row, by sorting.

use crate::sample::SamplingParams;

/// What should come of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Drawn {
    /// The token.
    pub(crate) id: i32,
    /// A cut or the draw lies so close to an edge that rounding may move it.
    pub(crate) near: bool,
    /// Whether the `best` first candidates are enough to know it; `None` when an
    /// approximate sum over the vocabulary makes that hard to tell.
    pub(crate) decided: Option<bool>,
}

/// How close to an edge a sum may be in F64.
const NEAR: f64 = 1e-9;
/// How much of the probability an approximate sum may be off.
const ROUGH: f64 = 1e-3;

/// Chooses with a uniform number, knowing the `best` candidates.
pub(crate) fn sample(logits: &[f32], best: usize, params: &SamplingParams, u: f64) -> Drawn {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    // Adding zero makes the two zeros one.
    order.sort_by(|&a, &b| (logits[b] + 0.0).total_cmp(&(logits[a] + 0.0)).then(a.cmp(&b)));
    if params.is_greedy() {
        return Drawn { id: order[0] as i32, near: false, decided: Some(true) };
    }
    let wanted = if params.top_k == 0 { order.len() } else { params.top_k as usize };
    order.truncate(wanted);
    let max = f64::from(logits[order[0]]);
    let size = |id: &usize| (f64::from(logits[*id]) - max).exp();
    let total: f64 = order.iter().map(size).sum();
    let (p, least) = (f64::from(params.top_p), f64::from(params.min_p));
    let known = order.len() <= best;
    // What top-k leaves has a sum that nobody knows when some of it is not among the best.
    let summed = p >= 1.0 || order.len() == logits.len();

    let (mut near, mut clear) = (false, true);
    let mut kept = order.len();
    if p < 1.0 {
        let mut sum = 0.0;
        for (i, id) in order.iter().enumerate() {
            sum += size(id);
            let gap = sum / total - p;
            near |= gap.abs() < NEAR;
            clear &= gap.abs() > ROUGH;
            if gap >= 0.0 {
                kept = i + 1;
                break;
            }
        }
    }
    let passing = order.iter().filter(|id| size(id) >= least).count();
    near |= order.iter().any(|id| least > 0.0 && (size(id) / least - 1.0).abs() < NEAR);
    let here = &order[..best.min(order.len())];
    let closes = least > 0.0 && here.iter().any(|id| size(id) < least * (1.0 - ROUGH));
    let decided = match () {
        () if known => Some(true),
        () if kept > best && passing > best && clear => Some(false),
        () if closes && kept.min(passing) < best && clear && summed => Some(true),
        () if kept <= best && clear && summed && p < 1.0 => Some(true),
        () => None,
    };
    order.truncate(kept);
    order.retain(|id| size(id) >= least);
    order.sort_unstable();
    let temperature = f64::from(params.temperature);
    let weight = |id: &usize| ((f64::from(logits[*id]) - max) / temperature).exp();
    let target = u * order.iter().map(weight).sum::<f64>();
    let (mut sum, mut chosen) = (0.0, None);
    for id in &order {
        sum += weight(id);
        near |= (sum - target).abs() < NEAR * (sum + target);
        if sum > target && chosen.is_none() {
            chosen = Some(*id as i32);
        }
    }
    Drawn { id: chosen.unwrap_or(-2), near, decided }
}
