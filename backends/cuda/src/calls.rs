//! Driver calls with their results checked. [`Calls`] is what the survey needs, so
//! that a test can answer in the driver's place.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;

use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};

use crate::api::{Api, SUCCESS, Status};
use crate::facts::Facts;

/// A driver call that failed, in the driver's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The C function.
    pub(crate) call: &'static str,
    /// What it returned.
    pub(crate) status: Status,
    /// What the driver says that means.
    pub(crate) words: String,
}

/// What is asked of the driver when devices are listed.
pub(crate) trait Calls {
    /// The newest CUDA version the driver speaks: 1000 x major + 10 x minor.
    fn driver_version(&self) -> Result<i32, Fault>;

    /// Initialises the driver; again and again does no harm.
    fn init(&self) -> Result<(), Fault>;

    /// Number of devices.
    fn device_count(&self) -> Result<usize, Fault>;

    /// What a device says of itself. Needs no context.
    fn facts(&self, index: usize) -> Result<Facts, Fault>;

    /// Bytes of device memory that are free. The driver tells this only within a
    /// context, so the device's primary context is retained for the length of the
    /// call (some tenths of a second and some hundred MiB where no other code of this
    /// process holds it) and released at once.
    fn free_memory(&self, index: usize) -> Result<u64, Fault>;
}

impl Api {
    fn check(&self, call: &'static str, status: Status) -> Result<(), Fault> {
        if status == SUCCESS {
            return Ok(());
        }
        Err(Fault { call, status, words: self.words(status) })
    }

    /// Name and meaning of a status.
    pub(crate) fn words(&self, status: Status) -> String {
        let (mut name, mut meaning) = (ptr::null(), ptr::null());
        // SAFETY: both write a pointer to a constant string, or null if unknown.
        unsafe {
            (self.cuGetErrorName)(status, &raw mut name);
            (self.cuGetErrorString)(status, &raw mut meaning);
        }
        // SAFETY: what was written above lives as long as the library, that is for good.
        match unsafe { (text(name), text(meaning)) } {
            (Some(name), Some(meaning)) => format!("{name}, {meaning}"),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => format!("error {status}"),
        }
    }

    pub(crate) fn device(&self, index: usize) -> Result<sys::CUdevice, Fault> {
        let mut device = 0;
        let ordinal = c_int::try_from(index).unwrap_or(c_int::MAX);
        // SAFETY: writes one device handle.
        let status = unsafe { (self.cuDeviceGet)(&raw mut device, ordinal) };
        self.check("cuDeviceGet", status)?;
        Ok(device)
    }

    /// Bytes of the device's memory.
    pub(crate) fn memory_total(&self, device: sys::CUdevice) -> Result<u64, Fault> {
        let mut bytes = 0;
        // SAFETY: writes one size.
        let status = unsafe { (self.cuDeviceTotalMem_v2)(&raw mut bytes, device) };
        self.check("cuDeviceTotalMem", status)?;
        Ok(bytes as u64)
    }

    /// The device's primary context, which the caller releases.
    pub(crate) fn retain(&self, device: sys::CUdevice) -> Result<sys::CUcontext, Fault> {
        let mut context = ptr::null_mut();
        // SAFETY: writes one handle.
        let status = unsafe { (self.cuDevicePrimaryCtxRetain)(&raw mut context, device) };
        self.check("cuDevicePrimaryCtxRetain", status)?;
        Ok(context)
    }

    /// One number that a device tells of itself.
    pub(crate) fn attribute(&self, device: sys::CUdevice, which: Attribute) -> Result<u32, Fault> {
        let mut value: c_int = 0;
        // SAFETY: writes one int.
        let status = unsafe { (self.cuDeviceGetAttribute)(&raw mut value, which, device) };
        self.check("cuDeviceGetAttribute", status)?;
        Ok(u32::try_from(value).unwrap_or(0))
    }

    fn name(&self, device: sys::CUdevice) -> Result<String, Fault> {
        let mut name = [0 as c_char; 256];
        // SAFETY: writes at most 255 bytes of 256, so that the last stays 0.
        let status = unsafe { (self.cuDeviceGetName)(name.as_mut_ptr(), 255, device) };
        self.check("cuDeviceGetName", status)?;
        let bytes: Vec<u8> = name.iter().take_while(|&&c| c != 0).map(|&c| c as u8).collect();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Free bytes as seen from a context that is retained by the caller.
    fn free_in(&self, context: sys::CUcontext) -> Result<u64, Fault> {
        // SAFETY: the context is retained.
        let status = unsafe { (self.cuCtxPushCurrent_v2)(context) };
        self.check("cuCtxPushCurrent", status)?;
        let (mut free, mut total, mut popped) = (0, 0, ptr::null_mut());
        // SAFETY: a context is current; the call writes two sizes.
        let asked = unsafe { (self.cuMemGetInfo_v2)(&raw mut free, &raw mut total) };
        // SAFETY: takes off what was pushed above.
        let status = unsafe { (self.cuCtxPopCurrent_v2)(&raw mut popped) };
        self.check("cuMemGetInfo", asked)?;
        self.check("cuCtxPopCurrent", status)?;
        Ok(free as u64)
    }
}

impl Calls for Api {
    fn driver_version(&self) -> Result<i32, Fault> {
        let mut version = 0;
        // SAFETY: writes one int; allowed before cuInit.
        let status = unsafe { (self.cuDriverGetVersion)(&raw mut version) };
        self.check("cuDriverGetVersion", status)?;
        Ok(version)
    }

    fn init(&self) -> Result<(), Fault> {
        // SAFETY: takes no pointers; the flags must be 0.
        let status = unsafe { (self.cuInit)(0) };
        self.check("cuInit", status)
    }

    fn device_count(&self) -> Result<usize, Fault> {
        let mut count = 0;
        // SAFETY: writes one int.
        let status = unsafe { (self.cuDeviceGetCount)(&raw mut count) };
        self.check("cuDeviceGetCount", status)?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    fn facts(&self, index: usize) -> Result<Facts, Fault> {
        let device = self.device(index)?;
        let get = |which| self.attribute(device, which);
        Ok(Facts {
            name: self.name(device)?,
            major: get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            minor: get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            units: get(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            warp_width: get(Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE)?,
            memory_total: self.memory_total(device)?,
            integrated: get(Attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED)? != 0,
            shared_bytes: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            l2_bytes: get(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?,
            cooperative_launch: get(Attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)? != 0,
        })
    }

    fn free_memory(&self, index: usize) -> Result<u64, Fault> {
        let device = self.device(index)?;
        let context = self.retain(device)?;
        let free = self.free_in(context);
        // SAFETY: gives back what was retained above.
        let status = unsafe { (self.cuDevicePrimaryCtxRelease_v2)(device) };
        self.check("cuDevicePrimaryCtxRelease", status)?;
        free
    }
}

/// A C string's text; none for null.
///
/// # Safety
/// Null, or a string that ends in 0 and stays valid during the call.
unsafe fn text(string: *const c_char) -> Option<String> {
    if string.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    Some(unsafe { CStr::from_ptr(string) }.to_string_lossy().into_owned())
}
