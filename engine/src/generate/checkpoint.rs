//! Going back to an earlier state of a sequence.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{GenerateFault, Session};
use crate::cache::RecurrentState;
use crate::error::Result;

/// A state that a sequence can go back to, kept on its device.
///
/// Keys and values are not copied: what lies past a sequence's end is never read, so that
/// only the recurrent state, which is overwritten in place, has to be kept.
pub struct Checkpoint {
    lineage: u64,
    committed: usize,
    recurrent: RecurrentState,
}

impl Checkpoint {
    /// Tokens of the sequence.
    pub fn committed(&self) -> usize {
        self.committed
    }
}

/// A number for a stretch of a sequence in which committed tokens only ever come to it.
/// No two stretches of any sessions share one.
pub(super) fn next_lineage() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Session {
    /// Keeps the present state. Takes as much device memory as the recurrent state.
    ///
    /// # Errors
    /// `OutOfMemory`, device faults.
    pub fn checkpoint(&mut self) -> Result<Checkpoint> {
        // What the drafter would still have to read is overwritten by later calls.
        self.draft_to_end()?;
        let recurrent = RecurrentState::reserve(self.engine.config(), &*self.engine.device)?;
        recurrent.copy_from(&self.recurrent, &mut *self.stream)?;
        self.stream.synchronize()?;
        Ok(Checkpoint { lineage: self.lineage, committed: self.committed, recurrent })
    }

    /// Goes back to a state that this session kept. Other checkpoints are of no more use
    /// then, since what comes next may overwrite the keys and values they rely on; this
    /// one can be gone back to again.
    ///
    /// # Errors
    /// `StaleCheckpoint` after a reset, after going back to another checkpoint, and for one
    /// of another session; device faults.
    pub fn rewind(&mut self, to: &mut Checkpoint) -> Result<()> {
        if to.lineage != self.lineage {
            return Err(GenerateFault::StaleCheckpoint.into());
        }
        self.recurrent.copy_from(&to.recurrent, &mut *self.stream)?;
        self.committed = to.committed;
        self.logit_count = 0;
        if let Some(speculation) = &mut self.speculation {
            speculation.rewind(to.committed);
        }
        self.lineage = next_lineage();
        to.lineage = self.lineage;
        self.stream.synchronize()
    }
}
