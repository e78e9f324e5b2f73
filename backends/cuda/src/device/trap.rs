//! How kernels report contents of device memory that break a rule: they write a record to
//! host memory, which costs nothing while all is well. Mirrors `fault.cuh` of the kernels.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, PoisonError};

use foretoken::device::DeviceFault;
use foretoken::kernel::KernelKey;

use super::Context;

/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`.
const MAPPED: u32 = 1 | 2;

/// The record; kernel 0 means that nothing happened.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
struct Record {
    kernel: u32,
    code: u32,
    value: i32,
    reserved: u32,
}

/// The first parameter of every kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    fault: u64,
    kernel: u32,
    reserved: u32,
}

impl Site {
    /// As the kernel gets it.
    pub(crate) fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.fault.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.kernel.to_ne_bytes());
        bytes
    }
}

/// One device's record, and the names of the kernels that may write it.
pub(crate) struct Trap {
    context: Arc<Context>,
    record: NonNull<Record>,
    address: u64,
    keys: Mutex<Vec<KernelKey>>,
}

// SAFETY: the record is read with volatile loads, and otherwise only passed on.
unsafe impl Send for Trap {}
// SAFETY: as above.
unsafe impl Sync for Trap {}

impl Trap {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self, DeviceFault> {
        let entered = context.enter()?;
        let mut host: *mut c_void = ptr::null_mut();
        // SAFETY: writes one address.
        let status =
            unsafe { (entered.work().cuMemHostAlloc)(&raw mut host, size_of::<Record>(), MAPPED) };
        entered.check("cuMemHostAlloc", status)?;
        let Some(record) = NonNull::new(host.cast::<Record>()) else {
            return Err(context.fail("cuMemHostAlloc".into(), "no memory was given".into()));
        };
        // SAFETY: just allocated, page-aligned, and large enough.
        unsafe { record.write(Record { kernel: 0, code: 0, value: 0, reserved: 0 }) };
        let context = Arc::clone(context);
        let mut trap = Self { context, record, address: 0, keys: Mutex::default() };
        // SAFETY: writes one address; the memory was allocated as mapped.
        let status = unsafe {
            (entered.work().cuMemHostGetDevicePointer_v2)(&raw mut trap.address, host, 0)
        };
        entered.check("cuMemHostGetDevicePointer", status)?;
        drop(entered);
        Ok(trap)
    }

    /// What a kernel of this key is to be given.
    pub(crate) fn site(&self, key: KernelKey) -> Site {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let known = keys.iter().position(|known| *known == key);
        let index = known.unwrap_or_else(|| {
            keys.push(key);
            keys.len() - 1
        });
        let kernel = u32::try_from(index + 1).unwrap_or(u32::MAX);
        Site { fault: self.address, kernel, reserved: 0 }
    }

    /// Fails, and ends the device, when a kernel has reported something. To be asked after
    /// a wait.
    pub(crate) fn check(&self) -> Result<(), DeviceFault> {
        // SAFETY: allocated while this lives; kernels write whole records, and their
        // writes are visible after a wait.
        let record = unsafe { self.record.as_ptr().read_volatile() };
        if record.kernel == 0 {
            return Ok(());
        }
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (record.kernel as usize).checked_sub(1).and_then(|index| keys.get(index));
        let call = key.map_or_else(|| "a kernel".to_owned(), ToString::to_string);
        let message = format!("{} ({})", words(record.code), record.value);
        Err(self.context.fail(call, message))
    }
}

impl Drop for Trap {
    fn drop(&mut self) {
        self.context.leave(|entered| {
            // SAFETY: allocated in `new`; kernels that know the address are gone with the
            // device's last handle.
            unsafe { (entered.work().cuMemFreeHost)(self.record.as_ptr().cast()) };
        });
    }
}

/// What a code says: those of `fault.cuh`, in their order.
const WORDS: &[(&str, &str)] = &[
    ("kNegativeControl", "a control word is negative"),
    ("kTooManyRows", "the control block names more rows than were recorded"),
    ("kPastCache", "the call reaches past the end of the cache"),
    ("kPastRing", "the call has more rows than the ring has slots"),
    ("kPastPositions", "a position is past 31 bits"),
    ("kNoRows", "there are no rows"),
    ("kBadCursor", "the cursor is out of order"),
    ("kBadPath", "the path has no rows, or more than the call"),
    ("kBadTree", "a row of the tree comes before its parent"),
];

fn words(code: u32) -> String {
    let known = (code as usize).checked_sub(1).and_then(|index| WORDS.get(index));
    known.map_or_else(|| format!("fault {code}"), |(_, words)| (*words).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernels' header and this file name the same codes in the same order.
    #[test]
    fn the_codes_are_those_of_the_kernels() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels-cuda/include/fault.cuh");
        let header = std::fs::read_to_string(path).unwrap();
        let (_, list) = header.split_once("enum class Code : unsigned {").unwrap();
        let (list, _) = list.split_once("};").unwrap();
        let codes: Vec<_> = list.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let want = WORDS.iter().zip(1..).map(|((name, _), code)| format!("{name} = {code},"));
        assert_eq!(codes, want.collect::<Vec<_>>());
        assert_eq!(words(2), "the control block names more rows than were recorded");
        assert_eq!((words(0), words(99)), ("fault 0".into(), "fault 99".into()));
    }

    #[test]
    fn a_site_is_laid_out_as_the_kernels_read_it() {
        let bytes = Site { fault: 0x0102_0304_0506_0708, kernel: 9, reserved: 0 }.bytes();
        assert_eq!(u64::from_ne_bytes(bytes[..8].try_into().unwrap()), 0x0102_0304_0506_0708);
        assert_eq!(u32::from_ne_bytes(bytes[8..12].try_into().unwrap()), 9);
        assert_eq!((size_of::<Record>(), align_of::<Record>(), size_of::<Site>()), (16, 16, 16));
    }
}
