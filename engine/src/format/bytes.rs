//! Bytes of a file, mapped or owned, shared by whoever still needs them.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// A cheaply clonable slice of shared bytes.
#[derive(Clone)]
pub struct SharedBytes {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    start: usize,
    end: usize,
}

impl SharedBytes {
    /// All bytes of an owner (a mapping or a vector).
    pub fn new(owner: Arc<dyn AsRef<[u8]> + Send + Sync>) -> Self {
        let end = (*owner).as_ref().len();
        Self { owner, start: 0, end }
    }

    /// A part of these bytes; `None` when the range is not inside them.
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        let start = self.start.checked_add(range.start)?;
        let end = self.start.checked_add(range.end)?;
        if start > end || end > self.end {
            return None;
        }
        Some(Self { owner: Arc::clone(&self.owner), start, end })
    }
}

impl Default for SharedBytes {
    fn default() -> Self {
        Self::from(Vec::new())
    }
}

impl From<Vec<u8>> for SharedBytes {
    fn from(v: Vec<u8>) -> Self {
        Self::new(Arc::new(v))
    }
}

impl Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // An owner whose length shrank (it should not) yields an empty slice.
        (*self.owner).as_ref().get(self.start..self.end).unwrap_or(&[])
    }
}

impl PartialEq for SharedBytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBytes({})", self.end - self.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_stay_inside() {
        let b = SharedBytes::from(vec![1, 2, 3, 4]);
        let s = b.slice(1..3).unwrap();
        assert_eq!(&*s, &[2, 3]);
        assert!(s.slice(0..3).is_none());
        assert!(b.slice(0..usize::MAX).is_none());
    }
}
