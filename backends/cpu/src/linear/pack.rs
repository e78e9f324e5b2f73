//! From rows of blocks as they lie in a file to panels.

use std::num::NonZero;
use std::thread;

use foretoken::Result;
use foretoken::quant::{affine_layout, to_affine};
use foretoken::tensor::DType;
use half::{bf16, f16};

use super::layout::{CHUNK_SUBS, Codes, Layout, PANEL, SUB, Scales, VECTOR};

/// Elements in a full chunk of one row.
const CHUNK: usize = CHUNK_SUBS * SUB;
/// Weights smaller than this are packed on the calling thread.
const SPLIT_FROM: usize = 1 << 20;

/// A matrix of whole rows as it lies in a file.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) dtype: DType,
    pub(super) bytes: &'a [u8],
    pub(super) row_bytes: usize,
    pub(super) cols: usize,
}

impl<'a> Source<'a> {
    /// The bytes of row `row`; `None` past the last one.
    fn row(&self, row: usize) -> Option<&'a [u8]> {
        self.bytes.get(row * self.row_bytes..)?.get(..self.row_bytes)
    }
}

/// Packs all panels, `panel_bytes` each, into `out`, which is zero to begin with (the
/// rows that pad the last panel stay so).
pub(super) fn pack(source: Source<'_>, out: &mut [u8], panel_bytes: usize) -> Result<()> {
    let panels = out.len() / panel_bytes.max(1);
    let threads = match out.len() < SPLIT_FROM {
        true => 1,
        false => thread::available_parallelism().map_or(1, NonZero::get).min(panels),
    };
    let share = panels.div_ceil(threads.max(1)).max(1);
    let part = |(i, out): (usize, &mut [u8])| -> Result<()> {
        for (panel, out) in out.chunks_exact_mut(panel_bytes).enumerate() {
            pack_panel(source, (i * share + panel) * PANEL, out)?;
        }
        Ok(())
    };
    let mut parts: Vec<_> = out.chunks_mut(share * panel_bytes).enumerate().collect();
    let own = parts.pop();
    thread::scope(|scope| {
        let mut started = Vec::new();
        let mut results = Vec::new();
        for (i, out) in parts {
            started.push(scope.spawn(move || part((i, out))));
        }
        results.extend(own.map(part));
        for thread in started {
            // A panic in there is a defect here: let it go on.
            results.push(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        results.into_iter().collect()
    })
}

fn pack_panel(source: Source<'_>, first: usize, out: &mut [u8]) -> Result<()> {
    match Layout::of(source.dtype) {
        Some(layout) => pack_blocks(source, first, out, &layout),
        None => {
            pack_scalars(source, first, out);
            Ok(())
        }
    }
}

/// `[k][16]`.
fn pack_scalars(source: Source<'_>, first: usize, out: &mut [u8]) {
    let size = source.dtype.block_bytes();
    for lane in 0..PANEL {
        let Some(row) = source.row(first + lane) else { return };
        let places = out.chunks_exact_mut(PANEL * size);
        for (value, place) in row.chunks_exact(size).zip(places) {
            place[lane * size..][..size].copy_from_slice(value);
        }
    }
}

fn pack_blocks(source: Source<'_>, first: usize, out: &mut [u8], layout: &Layout) -> Result<()> {
    let dtype = source.dtype;
    let mut codes = [0u8; CHUNK];
    let (mut scales, mut offsets) = ([0.0f32; 2 * CHUNK_SUBS], [0.0f32; 2 * CHUNK_SUBS]);
    let recode = recoding(dtype, layout);
    for lane in 0..PANEL {
        let Some(row) = source.row(first + lane) else { return Ok(()) };
        let mut out = &mut *out;
        let subs = source.cols / SUB;
        for from in (0..subs).step_by(CHUNK_SUBS) {
            let count = CHUNK_SUBS.min(subs - from);
            let (chunk, rest) = out.split_at_mut(layout.chunk_bytes(count));
            out = rest;
            let at = from * SUB / dtype.block_len() * dtype.block_bytes();
            let bytes = &row[at..][..(count * SUB / dtype.block_len()) * dtype.block_bytes()];
            let codes = &mut codes[..count * SUB];
            let scales = &mut scales[..count * layout.sets];
            let offsets = &mut offsets[..count * layout.sets];
            to_affine(dtype, bytes, codes, scales, offsets)?;
            codes.iter_mut().for_each(|code| *code = recode[usize::from(*code)]);
            let (head, vectors) = chunk.split_at_mut(layout.head_bytes(count));
            pack_head(layout, head, lane, bytes, scales, offsets);
            let subs = codes.chunks_exact(SUB).zip(vectors.chunks_exact_mut(layout.code_bytes()));
            for (codes, vectors) in subs {
                pack_codes(layout.codes, codes, vectors, lane);
            }
        }
    }
    Ok(())
}

/// From the codes of `to_affine` to those stored: shifted so that zero is where the
/// layout has it, and as table indices where there is a table.
fn recoding(dtype: DType, layout: &Layout) -> [u8; 256] {
    let theirs = affine_layout(dtype).and_then(|a| a.zero).unwrap_or(0);
    let ours = layout.zero.unwrap_or(0);
    std::array::from_fn(|code| {
        let moved = code as i32 - i32::from(theirs) + i32::from(ours);
        match layout.codes {
            Codes::Table(table, _) => {
                table.iter().position(|&t| i32::from(t) == moved).unwrap_or(0) as u8
            }
            _ => moved as u8,
        }
    })
}

fn pack_head(
    layout: &Layout,
    head: &mut [u8],
    lane: usize,
    block: &[u8],
    scales: &[f32],
    offsets: &[f32],
) {
    let (factors, sets) = head.split_at_mut(layout.factor_bytes());
    let f16_at = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]);
    let mut divisors = [1.0f32; 2];
    if let Scales::Super { factor_at, offset_factor_at, .. } = layout.scales {
        let pair = [f16_at(factor_at), -f16_at(offset_factor_at)];
        for (factor, place) in pair.iter().zip(factors.chunks_exact_mut(2 * PANEL)) {
            place[2 * lane..][..2].copy_from_slice(&factor.to_ne_bytes());
        }
        divisors = pair.map(f16::to_f32);
    }
    for sub in 0..scales.len() / layout.sets {
        let all = &mut sets[sub * layout.scale_bytes()..][..layout.scale_bytes()];
        let from = sub * layout.sets..(sub + 1) * layout.sets;
        let shifts = offsets[from.clone()].iter().map(|o| (-o, divisors[1]));
        let values = scales[from].iter().map(|&s| (s, divisors[0])).chain(shifts);
        // Types with a zero have room for the scales only.
        for ((value, divisor), place) in values.zip(all.chunks_exact_mut(layout.set_bytes())) {
            match layout.scales {
                Scales::F16 => {
                    place[2 * lane..][..2].copy_from_slice(&f16::from_f32(value).to_ne_bytes());
                }
                Scales::Bf16 => {
                    place[2 * lane..][..2].copy_from_slice(&bf16::from_f32(value).to_ne_bytes());
                }
                // Exact: the value was made as factor times a small integer. Where the
                // factor is zero or not finite, any byte gives what the value was.
                Scales::Super { signed: true, .. } => place[lane] = (value / divisor) as i8 as u8,
                Scales::Super { signed: false, .. } => place[lane] = (value / divisor) as u8,
            }
        }
    }
}

/// Writes the 32 codes of one row's sub-block into its lane of the code vectors.
fn pack_codes(kind: Codes, codes: &[u8], vectors: &mut [u8], lane: usize) {
    // Four codes, and the four bytes they go to, at a time.
    let planes = |vectors: &mut [u8], first: usize, bits: usize, shift: usize| {
        let per_byte = 8 / bits;
        let mask = u32::from_ne_bytes([((1u16 << bits) - 1) as u8; 4]);
        for (group, codes) in codes.as_chunks::<4>().0.iter().enumerate() {
            let at = (first + group / per_byte) * VECTOR + 4 * lane;
            let fields = (u32::from_le_bytes(*codes) >> shift) & mask;
            let fields = (fields << (group % per_byte * bits)).to_le_bytes();
            vectors[at..at + 4].iter_mut().zip(fields).for_each(|(byte, f)| *byte |= f);
        }
    };
    match kind {
        Codes::Bits2 => planes(vectors, 0, 2, 0),
        Codes::Bits3 => {
            planes(vectors, 0, 2, 0);
            planes(vectors, 2, 1, 2);
        }
        Codes::Bits4 | Codes::Table(..) => planes(vectors, 0, 4, 0),
        Codes::Bits5 => {
            planes(vectors, 0, 4, 0);
            planes(vectors, 4, 1, 4);
        }
        Codes::Bits6 => {
            planes(vectors, 0, 4, 0);
            planes(vectors, 4, 2, 4);
        }
        Codes::Bits8 => planes(vectors, 0, 8, 0),
    }
}
