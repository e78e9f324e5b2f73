//! Runtime calls with their results checked. [`Calls`] is what the survey needs, so
//! that a test can answer in the runtime's place.

use std::ffi::{CStr, c_char, c_int, c_uint};

use crate::api::{Api, Properties, SUCCESS, Status, attribute};
use crate::facts::Facts;

/// A runtime call that failed, in the runtime's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The C function.
    pub(crate) call: &'static str,
    /// What it returned.
    pub(crate) status: Status,
    /// What the runtime says that means.
    pub(crate) words: String,
}

/// What is asked of the runtime when devices are listed.
pub(crate) trait Calls {
    /// The runtime's version: 10,000,000 x major + 100,000 x minor + patch.
    fn runtime_version(&self) -> Result<i32, Fault>;

    /// Initialises the runtime; again and again does no harm.
    fn init(&self) -> Result<(), Fault>;

    /// Number of devices.
    fn device_count(&self) -> Result<usize, Fault>;

    /// What a device says of itself.
    fn facts(&self, index: usize) -> Result<Facts, Fault>;

    /// Bytes of device memory that are free. The runtime tells this only of the
    /// thread's current device, so that is set for the length of the call.
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
    fn words(&self, status: Status) -> String {
        // SAFETY: both return a pointer to a constant string, whatever the status,
        // that lives as long as the library, that is for good.
        let (name, meaning) = unsafe {
            (text((self.hipGetErrorName)(status)), text((self.hipGetErrorString)(status)))
        };
        match (name, meaning) {
            (Some(name), Some(meaning)) if name != meaning => format!("{name}, {meaning}"),
            (Some(one), _) | (None, Some(one)) => one,
            (None, None) => format!("error {status}"),
        }
    }

    fn device(&self, index: usize) -> Result<c_int, Fault> {
        let mut device = 0;
        let ordinal = c_int::try_from(index).unwrap_or(c_int::MAX);
        // SAFETY: writes one device handle.
        let status = unsafe { (self.hipDeviceGet)(&raw mut device, ordinal) };
        self.check("hipDeviceGet", status)?;
        Ok(device)
    }

    fn attribute(&self, device: c_int, which: c_uint) -> Result<u32, Fault> {
        let mut value: c_int = 0;
        // SAFETY: writes one int; an attribute that is not known is an error.
        let status = unsafe { (self.hipDeviceGetAttribute)(&raw mut value, which, device) };
        self.check("hipDeviceGetAttribute", status)?;
        Ok(u32::try_from(value).unwrap_or(0))
    }

    fn name(&self, device: c_int) -> Result<String, Fault> {
        let mut name = [0 as c_char; 256];
        // SAFETY: writes at most 255 bytes of 256, so that the last stays 0.
        let status = unsafe { (self.hipDeviceGetName)(name.as_mut_ptr(), 255, device) };
        self.check("hipDeviceGetName", status)?;
        let bytes: Vec<u8> = name.iter().take_while(|&&c| c != 0).map(|&c| c as u8).collect();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn arch(&self, device: c_int) -> Result<String, Fault> {
        let mut properties = Properties::zeroed();
        // SAFETY: there is more room than the structure of this revision takes.
        let status = unsafe { (self.hipGetDevicePropertiesR0600)(&raw mut properties, device) };
        self.check("hipGetDeviceProperties", status)?;
        Ok(properties.arch())
    }

    /// Compute units; older runtimes tell only the number they schedule on.
    fn units(&self, device: c_int) -> Result<u32, Fault> {
        match self.attribute(device, attribute::PHYSICAL_MULTIPROCESSOR_COUNT) {
            Ok(units) if units > 0 => Ok(units),
            _ => self.attribute(device, attribute::MULTIPROCESSOR_COUNT),
        }
    }

    /// Free bytes of the current device.
    fn free_here(&self) -> Result<u64, Fault> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two sizes.
        let status = unsafe { (self.hipMemGetInfo)(&raw mut free, &raw mut total) };
        self.check("hipMemGetInfo", status)?;
        Ok(free as u64)
    }
}

impl Calls for Api {
    fn runtime_version(&self) -> Result<i32, Fault> {
        let mut version = 0;
        // SAFETY: writes one int.
        let status = unsafe { (self.hipRuntimeGetVersion)(&raw mut version) };
        self.check("hipRuntimeGetVersion", status)?;
        Ok(version)
    }

    fn init(&self) -> Result<(), Fault> {
        // SAFETY: takes no pointers; the flags must be 0.
        let status = unsafe { (self.hipInit)(0) };
        self.check("hipInit", status)
    }

    fn device_count(&self) -> Result<usize, Fault> {
        let mut count = 0;
        // SAFETY: writes one int.
        let status = unsafe { (self.hipGetDeviceCount)(&raw mut count) };
        self.check("hipGetDeviceCount", status)?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    fn facts(&self, index: usize) -> Result<Facts, Fault> {
        let device = self.device(index)?;
        let mut memory_total = 0;
        // SAFETY: writes one size.
        let status = unsafe { (self.hipDeviceTotalMem)(&raw mut memory_total, device) };
        self.check("hipDeviceTotalMem", status)?;
        let get = |which| self.attribute(device, which);
        Ok(Facts {
            name: self.name(device)?,
            isa: self.arch(device)?,
            units: self.units(device)?,
            warp_width: get(attribute::WARP_SIZE)?,
            memory_total: memory_total as u64,
            integrated: get(attribute::INTEGRATED)? != 0,
            cooperative_launch: get(attribute::COOPERATIVE_LAUNCH)? != 0,
        })
    }

    fn free_memory(&self, index: usize) -> Result<u64, Fault> {
        let device = self.device(index)?;
        let mut before = 0;
        // SAFETY: writes one int.
        let status = unsafe { (self.hipGetDevice)(&raw mut before) };
        self.check("hipGetDevice", status)?;
        // SAFETY: takes no pointers.
        let status = unsafe { (self.hipSetDevice)(device) };
        self.check("hipSetDevice", status)?;
        let free = self.free_here();
        // SAFETY: puts back what was current.
        let status = unsafe { (self.hipSetDevice)(before) };
        self.check("hipSetDevice", status)?;
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
