//! Loaded code, one module for each source, loaded when its first kernel is prepared.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::{self, CUfunction_attribute as Attribute, CUjit_option as Jit};
use foretoken::device::DeviceFault;

use super::{Built, Code, Context, Entered};

/// Room for the driver's complaints about code it will not load.
const LOG_BYTES: usize = 4096;

/// A module of the driver, unloaded when dropped.
struct Module {
    context: Arc<Context>,
    raw: sys::CUmodule,
}

/// A kernel's entry in a module that it keeps loaded.
#[derive(Clone)]
pub(crate) struct Function {
    raw: sys::CUfunction,
    name: &'static str,
    max_threads: u32,
    static_shared: u32,
    _module: Arc<Module>,
}

// SAFETY: module and function handles may be used from any thread; the driver locks.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}
// SAFETY: as above.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// All code of a device.
pub(crate) struct Modules {
    built: Built,
    code: Code,
    loaded: Mutex<HashMap<&'static str, Arc<Module>>>,
}

impl Modules {
    pub(crate) fn new(built: Built, code: Code) -> Self {
        Self { built, code, loaded: Mutex::default() }
    }

    /// What the code was compiled for.
    pub(crate) fn code(&self) -> Code {
        self.code
    }

    /// A kernel of a source: `stamp` of `stamp.cu`.
    ///
    /// # Errors
    /// There is no such source or kernel in this build, or the driver does not load it.
    pub(crate) fn function(
        &self,
        context: &Arc<Context>,
        family: &'static str,
        name: &'static str,
    ) -> Result<Function, DeviceFault> {
        let entered = context.enter()?;
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let module = match loaded.get(family) {
            Some(module) => Arc::clone(module),
            None => {
                let module = Arc::new(self.load(context, &entered, family)?);
                loaded.insert(family, Arc::clone(&module));
                module
            }
        };
        drop(loaded);
        Function::of(&entered, module, name)
            .map_err(|(call, words)| failed(format!("{call} of {family}/{name}"), words))
    }

    fn load(
        &self,
        context: &Arc<Context>,
        entered: &Entered<'_>,
        family: &'static str,
    ) -> Result<Module, DeviceFault> {
        let call = format!("loading {} of {family}", self.code);
        let Some(image) = self.built.image(family, self.code) else {
            return Err(failed(call, "this build has no such code".to_owned()));
        };
        let mut log = vec![0u8; LOG_BYTES];
        let mut options = [Jit::CU_JIT_ERROR_LOG_BUFFER, Jit::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        // The second option's value is a number in a pointer's place.
        let size = ptr::without_provenance_mut::<c_void>(LOG_BYTES);
        let mut values = [log.as_mut_ptr().cast::<c_void>(), size];
        let mut raw = ptr::null_mut();
        // SAFETY: the image is a whole fatbin; two options with their values, of which the
        // log outlives the call; writes one handle.
        let status = unsafe {
            (entered.work().cuModuleLoadDataEx)(
                &raw mut raw,
                image.bytes.as_ptr().cast(),
                2,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        entered.judge("cuModuleLoadDataEx", status).map_err(|refusal| {
            let said = log.split(|&b| b == 0).next().unwrap_or_default();
            let said = String::from_utf8_lossy(said).trim().replace('\n', "; ");
            let dot = if said.is_empty() { "" } else { ": " };
            failed(call, format!("{}{dot}{said}", refusal.words))
        })?;
        Ok(Module { context: Arc::clone(context), raw })
    }
}

/// Code that does not load is a failure that leaves the device as it was.
fn failed(call: String, message: String) -> DeviceFault {
    DeviceFault::Failed { driver: "cuda", call, message }
}

impl Function {
    fn of(
        entered: &Entered<'_>,
        module: Arc<Module>,
        name: &'static str,
    ) -> Result<Self, (&'static str, String)> {
        let terminated = CString::new(name).unwrap_or_default();
        let symbol: *const c_char = terminated.as_ptr();
        let mut raw = ptr::null_mut();
        // SAFETY: a loaded module of the current context; writes one handle.
        let status =
            unsafe { (entered.work().cuModuleGetFunction)(&raw mut raw, module.raw, symbol) };
        let call = "cuModuleGetFunction";
        entered.judge(call, status).map_err(|refusal| (call, refusal.words))?;
        let attribute = |which| {
            let mut value = 0;
            // SAFETY: a function of the current context; writes one int.
            let status = unsafe { (entered.work().cuFuncGetAttribute)(&raw mut value, which, raw) };
            let call = "cuFuncGetAttribute";
            entered.judge(call, status).map_err(|refusal| (call, refusal.words))?;
            Ok(u32::try_from(value).unwrap_or(0))
        };
        Ok(Self {
            raw,
            name,
            max_threads: attribute(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            static_shared: attribute(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            _module: module,
        })
    }

    /// Symbol.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// The handle, valid while this lives.
    pub(crate) fn raw(&self) -> sys::CUfunction {
        self.raw
    }

    /// Whether the code's parameters begin with those of these sizes in bytes; with
    /// `and_no_more`, whether they are all. There is no call for their number: past the
    /// last one the driver finds the index invalid, which tools that watch for failed
    /// calls report.
    pub(crate) fn takes(
        &self,
        entered: &Entered<'_>,
        mut sizes: impl ExactSizeIterator<Item = usize>,
        and_no_more: bool,
    ) -> Result<bool, DeviceFault> {
        let count = sizes.len();
        let size = |index| self.parameter(entered, index);
        for index in 0..count {
            if size(index)? != sizes.next() {
                return Ok(false);
            }
        }
        Ok(!and_no_more || size(count)?.is_none())
    }

    /// Size of a parameter; `None` past the last one.
    fn parameter(&self, entered: &Entered<'_>, index: usize) -> Result<Option<usize>, DeviceFault> {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: a function of the current context; writes two sizes.
        let status = unsafe {
            (entered.work().cuFuncGetParamInfo)(self.raw, index, &raw mut offset, &raw mut size)
        };
        match entered.judge("cuFuncGetParamInfo", status) {
            Ok(()) => Ok(Some(size)),
            Err(refusal) if refusal.is_invalid_value() => Ok(None),
            Err(refusal) => {
                Err(failed(format!("{} of {}", refusal.call, self.name), refusal.words))
            }
        }
    }

    /// Most threads of a block.
    pub(crate) fn max_threads(&self) -> u32 {
        self.max_threads
    }

    /// Shared memory that the kernel declares itself.
    pub(crate) fn static_shared(&self) -> u32 {
        self.static_shared
    }

    /// Lets blocks have this much dynamic shared memory.
    pub(crate) fn allow_shared(
        &self,
        entered: &Entered<'_>,
        bytes: u32,
    ) -> Result<(), DeviceFault> {
        let which = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        // SAFETY: a function of the current context.
        let status = unsafe { (entered.work().cuFuncSetAttribute)(self.raw, which, bytes) };
        entered
            .judge("cuFuncSetAttribute", status)
            .map_err(|refusal| failed(format!("{} of {}", refusal.call, self.name), refusal.words))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        self.context.leave(|entered| {
            // SAFETY: the last function of the module is gone; the driver waits for
            // launches in flight.
            unsafe { (entered.work().cuModuleUnload)(self.raw) };
        });
    }
}
