//! Copies from one device's memory to another's without the host.

use std::sync::Arc;

use super::{Buffer, Device, DeviceFault, DeviceInfo, Stream};
use crate::error::{Error, Result};

/// One end of a copy between devices: a place in a buffer, and a stream of its device.
pub struct End<'a> {
    /// What the copy is ordered with.
    pub stream: &'a mut dyn Stream,
    /// The memory.
    pub buffer: &'a Buffer,
    /// First byte.
    pub offset: usize,
}

/// A way for copies between two devices, in both directions, from [`Device::link`].
pub trait Link: Send + Sync {
    /// Copies `bytes` from one device of the link to the other. The copy comes after all
    /// work issued to both streams so far, and before what is issued to either later; the
    /// host does not wait.
    ///
    /// # Errors
    /// `OutOfBounds`; `ForeignBuffer` when the streams or buffers are not those of the two
    /// devices; `NoLink` when the copy is refused. Then nothing was copied. A failure while
    /// the copy runs is one of the sending stream's work.
    fn copy(&self, from: End<'_>, to: End<'_>, bytes: usize) -> Result<()>;
}

/// Sizes that are tried: around one and several times the 16 bytes that copies are moved in,
/// pages, and more than a page.
const SIZES: [usize; 9] = [1, 3, 15, 16, 17, 4095, 4096, 65_537, (1 << 20) + 13];

/// Bytes around a copy that it must leave alone.
const MARGIN: usize = 5;

/// What is there before a copy arrives.
const BEFORE: u8 = 0xa5;

/// A link between two devices whose copies were looked at where they arrived: several sizes,
/// both ways, at places that are not multiples of 16. Two buffers of about a MiB are
/// reserved for as long as that takes.
///
/// # Errors
/// `NoLink` when there is none, or when a copy arrived wrong; `OutOfMemory`; device faults.
pub fn verified_link(a: &dyn Device, b: &dyn Device) -> Result<Arc<dyn Link>> {
    let link = a.link(b)?;
    let most = SIZES.into_iter().max().unwrap_or(0) + 2 * MARGIN;
    let mut ends = Vec::with_capacity(2);
    for device in [a, b] {
        ends.push((device.stream()?, device.allocate(most, "trial copies")?, name(&device.info())));
    }
    for round in [0, 1] {
        if round == 1 {
            ends.reverse();
        }
        let [from, to] = ends.as_mut_slice() else { continue };
        for bytes in SIZES {
            let sent: Vec<u8> = (0..bytes).map(|i| pattern(i, bytes + round)).collect();
            from.0.write(&from.1, 1, &sent)?;
            to.0.fill(&to.1, 0, bytes + 2 * MARGIN, BEFORE)?;
            let source = End { stream: &mut *from.0, buffer: &from.1, offset: 1 };
            let target = End { stream: &mut *to.0, buffer: &to.1, offset: MARGIN };
            link.copy(source, target, bytes)?;
            let mut arrived = vec![0; bytes + 2 * MARGIN];
            to.0.read(&to.1, 0, &mut arrived)?;
            from.0.synchronize()?;
            let wanted = |i: usize| {
                let inside = i.checked_sub(MARGIN).and_then(|i| sent.get(i));
                inside.copied().unwrap_or(BEFORE)
            };
            if let Some(at) = (0..arrived.len()).find(|&i| arrived.get(i) != Some(&wanted(i))) {
                let at = at as i64 - MARGIN as i64;
                let reason = format!("a copy of {bytes} bytes arrived wrong at byte {at}");
                return Err(no_link(&from.2, &to.2, reason));
            }
        }
    }
    Ok(link)
}

/// Bytes that repeat late, and differ from trial to trial.
fn pattern(i: usize, trial: usize) -> u8 {
    let mixed = (i as u64 + 1).wrapping_mul(trial as u64 | 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

/// A device as faults name it: `cuda:0`.
fn name(info: &DeviceInfo) -> String {
    format!("{}:{}", info.driver, info.index)
}

fn no_link(from: &str, to: &str, reason: String) -> Error {
    DeviceFault::NoLink { from: from.to_owned(), to: to.to_owned(), reason }.into()
}

/// What [`Device::link`] fails with where a driver has no such copies.
pub(super) fn unsupported(from: &DeviceInfo, to: &DeviceInfo) -> Error {
    no_link(&name(from), &name(to), format!("the driver '{}' has none", from.driver))
}
