//! The functions of the HIP runtime, resolved once.
//!
//! The signatures are those of ROCm 6 and 7, and the feature `check-bindings` holds
//! them against `cubecl-hip-sys` at compile time. That crate is not used beyond this:
//! it does not compile beside a ROCm release that it does not list, it looks for
//! `libamdhip64.so` only (which comes with the development packages), it wants hiprtc
//! too, and it panics when a symbol is missing.

use std::env;
use std::error::Error as _;
use std::ffi::{OsString, c_char, c_int, c_uint};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::Library;

use crate::problem::Problem;

/// `hipError_t`.
pub(crate) type Status = c_uint;

/// `hipSuccess`.
pub(crate) const SUCCESS: Status = 0;

/// `hipErrorNoDevice`.
pub(crate) const NO_DEVICE: Status = 100;

/// Values of `hipDeviceAttribute_t`.
pub(crate) mod attribute {
    use std::ffi::c_uint;

    pub(crate) const COOPERATIVE_LAUNCH: c_uint = 10;
    pub(crate) const INTEGRATED: c_uint = 16;
    /// Compute units, or half as many where the runtime works in workgroup processors.
    pub(crate) const MULTIPROCESSOR_COUNT: c_uint = 63;
    pub(crate) const WARP_SIZE: c_uint = 87;
    /// Compute units, whatever the mode.
    pub(crate) const PHYSICAL_MULTIPROCESSOR_COUNT: c_uint = 10015;
}

/// Room for `hipDeviceProp_tR0600`, and more: one field is read. The name of the
/// function that fills it pins the layout.
#[repr(C, align(8))]
pub(crate) struct Properties([u8; 4096]);

impl Properties {
    /// Where the architecture's name (`gcnArchName`, 256 bytes) lies.
    const ARCH: usize = 1160;

    pub(crate) const fn zeroed() -> Self {
        Self([0; 4096])
    }

    /// `gcnArchName`, up to its end.
    pub(crate) fn arch(&self) -> String {
        let field = self.0.iter().skip(Self::ARCH).take(256);
        let bytes: Vec<u8> = field.copied().take_while(|&byte| byte != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Declares the table. `same` also holds the signature against the bindings' at
/// compile time, where they are built in; `own` is for those that differ on purpose.
macro_rules! functions {
    ($($kind:ident $name:ident($($arg:ty),*) -> $result:ty;)*) => {
        /// Addresses of runtime functions, under their C names.
        #[allow(non_snake_case)]
        pub(crate) struct Api {
            $(pub(crate) $name: unsafe extern "C" fn($($arg),*) -> $result,)*
        }

        impl Api {
            /// Takes all addresses from the library, or names the first that is missing.
            fn resolve(library: &Library) -> Result<Self, &'static str> {
                Ok(Self {
                    // SAFETY: these are the C signatures of the HIP runtime.
                    $($name: unsafe {
                        *library
                            .get(concat!(stringify!($name), "\0").as_bytes())
                            .map_err(|_| stringify!($name))?
                    },)*
                })
            }
        }

        $(functions!(@$kind $name($($arg),*) -> $result);)*
    };
    (@same $name:ident($($arg:ty),*) -> $result:ty) => {
        #[cfg(feature = "check-bindings")]
        const _: unsafe extern "C" fn($($arg),*) -> $result = cubecl_hip_sys::$name;
    };
    (@own $name:ident($($arg:ty),*) -> $result:ty) => {};
}

functions! {
    same hipInit(c_uint) -> Status;
    same hipRuntimeGetVersion(*mut c_int) -> Status;
    same hipGetDeviceCount(*mut c_int) -> Status;
    same hipDeviceGet(*mut c_int, c_int) -> Status;
    same hipDeviceGetName(*mut c_char, c_int, c_int) -> Status;
    same hipDeviceTotalMem(*mut usize, c_int) -> Status;
    same hipDeviceGetAttribute(*mut c_int, c_uint, c_int) -> Status;
    own hipGetDevicePropertiesR0600(*mut Properties, c_int) -> Status;
    same hipGetDevice(*mut c_int) -> Status;
    same hipSetDevice(c_int) -> Status;
    same hipMemGetInfo(*mut usize, *mut usize) -> Status;
    same hipGetErrorName(Status) -> *const c_char;
    same hipGetErrorString(Status) -> *const c_char;
}

/// The table of this process, looked for on the first call.
///
/// # Errors
/// The library, or a function in it, is missing.
pub(crate) fn api() -> Result<&'static Api, Problem> {
    static API: OnceLock<Result<Api, Problem>> = OnceLock::new();
    API.get_or_init(|| load(&candidates(|name| env::var_os(name)))).as_ref().map_err(Clone::clone)
}

fn load(candidates: &[PathBuf]) -> Result<Api, Problem> {
    for candidate in candidates {
        let file = candidate.display().to_string();
        // SAFETY: loading the vendor's runtime runs its initialisers, nothing else.
        match unsafe { Library::new(candidate) } {
            Ok(library) => {
                // It stays loaded for good: its functions are called until the end.
                let library: &'static Library = Box::leak(Box::new(library));
                return Api::resolve(library)
                    .map_err(|function| Problem::FunctionMissing { function, file });
            }
            Err(error) => {
                let words = words(&error);
                if !is_absent(&file, &words) {
                    return Err(Problem::LibraryBroken { file, words });
                }
            }
        }
    }
    let tried = candidates.iter().map(|c| c.display().to_string()).collect();
    Err(Problem::LibraryMissing { tried })
}

/// The system loader's own words, which lie beneath `libloading`'s, in one line.
fn words(error: &libloading::Error) -> String {
    let words = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether the loader's words mean that this very file is not there, rather than that
/// it, or a library it needs, cannot be loaded. Outside Linux the words do not tell.
fn is_absent(file: &str, words: &str) -> bool {
    !cfg!(target_os = "linux")
        || words.starts_with(&format!("{file}: cannot open shared object file: No such file"))
}

/// File names of the runtime, newest first: a machine without the development packages
/// has versioned names only.
const NAMES: &[&str] = if cfg!(windows) {
    &["amdhip64_7.dll", "amdhip64_6.dll", "amdhip64.dll"]
} else {
    &["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"]
};

/// Where to look, in order: the installation that variables name, then wherever the
/// system's loader looks, then ROCm's usual place.
fn candidates(variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let below = if cfg!(windows) { "bin" } else { "lib" };
    let named = ["ROCM_PATH", "HIP_PATH"].into_iter().filter_map(variable);
    let mut folders: Vec<PathBuf> =
        named.filter(|path| !path.is_empty()).map(|path| Path::new(&path).join(below)).collect();
    folders.push(PathBuf::new());
    if cfg!(target_os = "linux") {
        folders.push(PathBuf::from("/opt/rocm/lib"));
    }
    folders.iter().flat_map(|folder| NAMES.iter().map(|name| folder.join(name))).collect()
}

#[cfg(feature = "check-bindings")]
const _: () = {
    use cubecl_hip_sys as sys;
    assert!(SUCCESS == sys::hipError_t_hipSuccess);
    assert!(NO_DEVICE == sys::hipError_t_hipErrorNoDevice);
    assert!(Properties::ARCH == std::mem::offset_of!(sys::hipDeviceProp_tR0600, gcnArchName));
    assert!(size_of::<Properties>() >= 2 * size_of::<sys::hipDeviceProp_tR0600>());
    assert!(align_of::<Properties>() >= align_of::<sys::hipDeviceProp_tR0600>());
    use attribute as a;
    assert!(a::COOPERATIVE_LAUNCH == sys::hipDeviceAttribute_t_hipDeviceAttributeCooperativeLaunch);
    assert!(a::INTEGRATED == sys::hipDeviceAttribute_t_hipDeviceAttributeIntegrated);
    assert!(
        a::MULTIPROCESSOR_COUNT == sys::hipDeviceAttribute_t_hipDeviceAttributeMultiprocessorCount
    );
    assert!(a::WARP_SIZE == sys::hipDeviceAttribute_t_hipDeviceAttributeWarpSize);
    assert!(
        a::PHYSICAL_MULTIPROCESSOR_COUNT
            == sys::hipDeviceAttribute_t_hipDeviceAttributePhysicalMultiProcessorCount
    );
};

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn versioned_names_come_first_and_variables_before_the_system() {
        let all = candidates(|name| (name == "ROCM_PATH").then(|| "/r".into()));
        let all: Vec<_> = all.iter().map(|p| p.to_str().unwrap()).collect();
        assert_eq!(all[0], "/r/lib/libamdhip64.so.7");
        assert_eq!(all[3..6], ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"]);
        assert_eq!(all[6], "/opt/rocm/lib/libamdhip64.so.7");
        // An empty variable is as good as none.
        assert_eq!(candidates(|_| Some("".into())).len(), 6);
    }

    #[test]
    fn a_library_that_is_missing_or_not_the_runtime_is_refused_by_name() {
        let nowhere = PathBuf::from("/no-such-folder/libamdhip64.so.7");
        let tried = vec![nowhere.display().to_string()];
        let fault = load(std::slice::from_ref(&nowhere)).err().unwrap();
        assert_eq!(fault, Problem::LibraryMissing { tried });
        let fault = load(&[nowhere, PathBuf::from("libc.so.6")]).err().unwrap();
        let file = "libc.so.6".into();
        assert_eq!(fault, Problem::FunctionMissing { function: "hipInit", file });
    }

    #[test]
    fn a_library_that_does_not_load_is_quoted() {
        let folder = std::env::temp_dir().join(format!("foretoken-hip-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("libamdhip64.so.7");
        std::fs::write(&file, "not a library").unwrap();
        let fault = load(std::slice::from_ref(&file)).err().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let Problem::LibraryBroken { words, .. } = &fault else { panic!("{fault}") };
        assert!(words.contains("file too short") || words.contains("invalid ELF"), "{words}");
        // A library it needs is missing: not the same as the runtime itself missing.
        let needs = "libamd_comgr.so.3: cannot open shared object file: No such file or directory";
        assert!(!is_absent("libamdhip64.so.7", needs));
    }

    #[test]
    fn the_architecture_is_read_up_to_its_end() {
        let mut properties = Properties::zeroed();
        assert_eq!(properties.arch(), "");
        properties.0[Properties::ARCH..][..8].copy_from_slice(b"gfx1151\0");
        assert_eq!(properties.arch(), "gfx1151");
        properties.0[Properties::ARCH..].fill(b'x');
        assert_eq!(properties.arch().len(), 256);
    }
}
