//! Little-endian reading with every step bounded by what is left.

use std::ops::Range;

use crate::format::FormatFault;

/// No string of a model file comes near this; chat templates are tens of kilobytes.
const MAX_STRING: u64 = 64 << 20;

/// A position in the bytes of a file.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    pos: usize,
}

/// The bytes ran out.
pub(super) struct Short {
    at: u64,
    need: u64,
    left: u64,
}

impl Short {
    /// Says what was being read.
    pub(super) fn within(self, what: impl Into<String>) -> FormatFault {
        FormatFault::Truncated { what: what.into(), at: self.at, need: self.need, left: self.left }
    }
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, pos: 0 }
    }

    /// Bytes read so far.
    pub(super) fn pos(&self) -> usize {
        self.pos
    }

    /// Bytes not yet read.
    pub(super) fn left(&self) -> u64 {
        self.bytes.len().saturating_sub(self.pos) as u64
    }

    /// The next `n` bytes.
    pub(super) fn take(&mut self, n: u64) -> Result<&'a [u8], Short> {
        let end = usize::try_from(n).ok().and_then(|n| self.pos.checked_add(n));
        let taken = end.and_then(|end| Some((self.bytes.get(self.pos..end)?, end)));
        let Some((taken, end)) = taken else {
            return Err(Short { at: self.pos as u64, need: n, left: self.left() });
        };
        self.pos = end;
        Ok(taken)
    }

    /// The next `N` bytes, for `from_le_bytes`.
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Short> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N as u64)?);
        Ok(out)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Short> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Short> {
        self.array().map(u64::from_le_bytes)
    }

    /// A string: `u64` length, then that many bytes. Gives where the bytes are.
    pub(super) fn string(
        &mut self,
        what: impl Fn() -> String,
    ) -> Result<Range<usize>, FormatFault> {
        let len = self.u64().map_err(|s| s.within(what()))?;
        if len > MAX_STRING && len <= self.left() {
            return Err(FormatFault::StringTooLong { what: what(), len, limit: MAX_STRING });
        }
        let start = self.pos;
        self.take(len).map_err(|s| s.within(what()))?;
        Ok(start..self.pos)
    }

    /// Checks a count against what the rest of the file could hold at `least` bytes each.
    pub(super) fn fits(
        &self,
        count: u64,
        least: u64,
        what: impl Fn() -> String,
    ) -> Result<(), FormatFault> {
        let room = self.left() / least.max(1);
        if count > room {
            return Err(FormatFault::Count { what: what(), count, room });
        }
        Ok(())
    }
}
