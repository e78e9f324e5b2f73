//! How a request asks for speculation, and what one step does of it.

use std::fmt;
use std::str::FromStr;

use super::SpeculateFault;
use crate::kernel::TreeRows;

/// What the user asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SpecMode {
    /// Whatever is fastest, plain decoding included.
    #[default]
    Auto,
    /// Plain decoding.
    Off,
    /// A chain of the full draft length in every step.
    Chain,
    /// A tree of the full budget in every step.
    Tree,
}

impl SpecMode {
    /// All modes, in the order they are listed to users.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Off, Self::Chain, Self::Tree];

    /// `auto`, `off`, `chain` or `tree`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Off => "off",
            Self::Chain => "chain",
            Self::Tree => "tree",
        }
    }
}

impl fmt::Display for SpecMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for SpecMode {
    type Err = SpeculateFault;

    fn from_str(name: &str) -> Result<Self, SpeculateFault> {
        Self::ALL
            .into_iter()
            .find(|mode| mode.name() == name)
            .ok_or_else(|| SpeculateFault::UnknownMode { name: name.into() })
    }
}

/// The most a step may draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecLimits {
    draft_len: usize,
    tree_budget: usize,
}

impl SpecLimits {
    /// Most drafted rows of a step: the pending token takes one of the tree's rows.
    pub const MAX: usize = TreeRows::MAX - 1;

    /// Limits for chains (`draft_len` tokens) and for trees (`tree_budget` drafted rows),
    /// each 1 to 63.
    ///
    /// # Errors
    /// `BadDraftLen`, `BadTreeBudget`.
    pub fn new(draft_len: usize, tree_budget: usize) -> Result<Self, SpeculateFault> {
        let max = Self::MAX;
        if !(1..=max).contains(&draft_len) {
            return Err(SpeculateFault::BadDraftLen { asked: draft_len, max });
        }
        if !(1..=max).contains(&tree_budget) {
            return Err(SpeculateFault::BadTreeBudget { asked: tree_budget, max });
        }
        Ok(Self { draft_len, tree_budget })
    }

    /// Longest chain in drafted tokens.
    pub fn draft_len(self) -> usize {
        self.draft_len
    }

    /// Most drafted rows of a tree.
    pub fn tree_budget(self) -> usize {
        self.tree_budget
    }
}

impl Default for SpecLimits {
    /// A block of 16 (15 drafted) and a budget of 22, where quantised models on one card
    /// were reported to peak.
    fn default() -> Self {
        Self { draft_len: 15, tree_budget: 22 }
    }
}

/// What one step does. Ordered from the least to the most drafted within a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Choice {
    /// One token, nothing drafted.
    Plain,
    /// A chain.
    Chain {
        /// Drafted tokens.
        len: usize,
    },
    /// A tree.
    Tree {
        /// Drafted rows.
        budget: usize,
    },
}

impl Choice {
    /// Rows to draft; with the pending token's the verify pass has one more.
    pub fn drafts(self) -> usize {
        match self {
            Self::Plain => 0,
            Self::Chain { len } => len,
            Self::Tree { budget } => budget,
        }
    }

    /// The shape alone: `off`, `chain` or `tree`.
    pub fn shape(self) -> &'static str {
        match self {
            Self::Plain => "off",
            Self::Chain { .. } => "chain",
            Self::Tree { .. } => "tree",
        }
    }

    /// The same shape with at most this many drafted rows.
    pub(super) fn cut(self, most: usize) -> Self {
        match self {
            _ if most == 0 => Self::Plain,
            Self::Plain => Self::Plain,
            Self::Chain { len } => Self::Chain { len: len.min(most) },
            Self::Tree { budget } => Self::Tree { budget: budget.min(most) },
        }
    }

    pub(super) fn kind(self) -> Kind {
        match self {
            Self::Plain => Kind::Plain,
            Self::Chain { .. } => Kind::Chain,
            Self::Tree { .. } => Kind::Tree,
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain => f.write_str("plain"),
            Self::Chain { len } => write!(f, "chain {len}"),
            Self::Tree { budget } => write!(f, "tree {budget}"),
        }
    }
}

/// A choice without its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Plain,
    Chain,
    Tree,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways() {
        for mode in SpecMode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        for bad in ["", "Auto", "on", "chain "] {
            let name = bad.to_string();
            assert_eq!(bad.parse::<SpecMode>(), Err(SpeculateFault::UnknownMode { name }));
        }
    }

    #[test]
    fn limits_are_checked() {
        for good in [1, 15, 63] {
            let limits = SpecLimits::new(good, 64 - good).unwrap();
            assert_eq!((limits.draft_len(), limits.tree_budget()), (good, 64 - good));
        }
        for asked in [0, 64, usize::MAX] {
            assert_eq!(
                SpecLimits::new(asked, 1),
                Err(SpeculateFault::BadDraftLen { asked, max: 63 })
            );
            assert_eq!(
                SpecLimits::new(1, asked),
                Err(SpeculateFault::BadTreeBudget { asked, max: 63 })
            );
        }
        let SpecLimits { draft_len, tree_budget } = SpecLimits::default();
        assert!(SpecLimits::new(draft_len, tree_budget).is_ok());
    }

    #[test]
    fn choices_are_shown_and_cut() {
        let tree = Choice::Tree { budget: 22 };
        assert_eq!(tree.to_string(), "tree 22");
        assert_eq!(Choice::Chain { len: 3 }.to_string(), "chain 3");
        assert_eq!((tree.drafts(), tree.shape()), (22, "tree"));
        assert_eq!(tree.cut(5), Choice::Tree { budget: 5 });
        assert_eq!(tree.cut(0), Choice::Plain);
        assert_eq!(Choice::Plain.cut(9), Choice::Plain);
    }
}
