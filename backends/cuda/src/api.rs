//! The functions of the driver library, resolved once.
//!
//! `cudarc` brings the types, the signatures and the search for the library. Its own
//! functions panic when the library or one of its symbols is missing, and return an
//! enum that a newer driver may step outside of; so the addresses are taken from the
//! library here, and results are plain numbers.

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};
use std::sync::OnceLock;

use cudarc::driver::sys;

use crate::problem::Problem;

/// A `CUresult` as a number.
pub(crate) type Status = u32;

/// `CUDA_SUCCESS`.
pub(crate) const SUCCESS: Status = sys::CUresult::CUDA_SUCCESS as Status;

/// `CUDA_ERROR_NO_DEVICE`.
pub(crate) const NO_DEVICE: Status = sys::CUresult::CUDA_ERROR_NO_DEVICE as Status;

/// Declares the table. `same` also holds the signature against the bindings' at
/// compile time; `own` is for those that take a status, which is a number here.
macro_rules! functions {
    ($(#[$doc:meta])* $table:ident: $($kind:ident $name:ident($($arg:ty),*);)*) => {
        $(#[$doc])*
        #[allow(non_snake_case)]
        pub(crate) struct $table {
            $(pub(crate) $name: unsafe extern "C" fn($($arg),*) -> Status,)*
        }

        impl $table {
            /// Takes all addresses from the library, or names the first that is missing.
            fn resolve(library: &libloading::Library) -> Result<Self, &'static str> {
                Ok(Self {
                    // SAFETY: these are the C signatures of the driver API.
                    $($name: unsafe {
                        *library
                            .get(concat!(stringify!($name), "\0").as_bytes())
                            .map_err(|_| stringify!($name))?
                    },)*
                })
            }
        }

        $(functions!(@$kind $name($($arg),*));)*
    };
    (@same $name:ident($($arg:ty),*)) => {
        const _: unsafe fn($($arg),*) -> sys::CUresult = sys::$name;
    };
    (@own $name:ident($($arg:ty),*)) => {};
}

functions! {
    /// What listing devices takes: addresses of driver functions, under their C names.
    Api:
    same cuInit(c_uint);
    same cuDriverGetVersion(*mut c_int);
    same cuDeviceGetCount(*mut c_int);
    same cuDeviceGet(*mut sys::CUdevice, c_int);
    same cuDeviceGetName(*mut c_char, c_int, sys::CUdevice);
    same cuDeviceTotalMem_v2(*mut usize, sys::CUdevice);
    same cuDeviceGetAttribute(*mut c_int, sys::CUdevice_attribute, sys::CUdevice);
    same cuDevicePrimaryCtxRetain(*mut sys::CUcontext, sys::CUdevice);
    same cuDevicePrimaryCtxRelease_v2(sys::CUdevice);
    same cuCtxPushCurrent_v2(sys::CUcontext);
    same cuCtxPopCurrent_v2(*mut sys::CUcontext);
    same cuMemGetInfo_v2(*mut usize, *mut usize);
    own cuGetErrorName(Status, *mut *const c_char);
    own cuGetErrorString(Status, *mut *const c_char);
}

functions! {
    /// What running kernels takes.
    WorkApi:
    same cuMemAlloc_v2(*mut sys::CUdeviceptr, usize);
    same cuMemFree_v2(sys::CUdeviceptr);
    same cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
    same cuMemHostGetDevicePointer_v2(*mut sys::CUdeviceptr, *mut c_void, c_uint);
    same cuMemFreeHost(*mut c_void);
    same cuMemcpyHtoDAsync_v2(sys::CUdeviceptr, *const c_void, usize, sys::CUstream);
    same cuMemcpyDtoHAsync_v2(*mut c_void, sys::CUdeviceptr, usize, sys::CUstream);
    same cuMemcpyDtoDAsync_v2(sys::CUdeviceptr, sys::CUdeviceptr, usize, sys::CUstream);
    same cuMemcpyPeerAsync(
        sys::CUdeviceptr, sys::CUcontext, sys::CUdeviceptr, sys::CUcontext, usize, sys::CUstream
    );
    same cuDeviceCanAccessPeer(*mut c_int, sys::CUdevice, sys::CUdevice);
    same cuCtxEnablePeerAccess(sys::CUcontext, c_uint);
    same cuCtxCreate_v4(
        *mut sys::CUcontext, *mut sys::CUctxCreateParams, c_uint, sys::CUdevice
    );
    same cuCtxDestroy_v2(sys::CUcontext);
    same cuMemsetD8Async(sys::CUdeviceptr, c_uchar, usize, sys::CUstream);
    same cuStreamCreate(*mut sys::CUstream, c_uint);
    same cuStreamDestroy_v2(sys::CUstream);
    same cuStreamSynchronize(sys::CUstream);
    same cuStreamWaitEvent(sys::CUstream, sys::CUevent, c_uint);
    same cuEventCreate(*mut sys::CUevent, c_uint);
    same cuEventRecord(sys::CUevent, sys::CUstream);
    same cuEventSynchronize(sys::CUevent);
    same cuEventDestroy_v2(sys::CUevent);
    same cuModuleLoadDataEx(
        *mut sys::CUmodule, *const c_void, c_uint, *mut sys::CUjit_option, *mut *mut c_void
    );
    same cuModuleUnload(sys::CUmodule);
    same cuModuleGetFunction(*mut sys::CUfunction, sys::CUmodule, *const c_char);
    same cuFuncGetAttribute(*mut c_int, sys::CUfunction_attribute, sys::CUfunction);
    same cuFuncSetAttribute(sys::CUfunction, sys::CUfunction_attribute, c_int);
    same cuFuncGetParamInfo(sys::CUfunction, usize, *mut usize, *mut usize);
    same cuLaunchKernel(
        sys::CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint,
        sys::CUstream, *mut *mut c_void, *mut *mut c_void
    );
    same cuGraphCreate(*mut sys::CUgraph, c_uint);
    same cuGraphAddKernelNode_v2(
        *mut sys::CUgraphNode, sys::CUgraph, *const sys::CUgraphNode, usize,
        *const sys::CUDA_KERNEL_NODE_PARAMS
    );
    same cuGraphAddDependencies_v2(
        sys::CUgraph, *const sys::CUgraphNode, *const sys::CUgraphNode,
        *const sys::CUgraphEdgeData, usize
    );
    same cuGraphInstantiateWithFlags(*mut sys::CUgraphExec, sys::CUgraph, c_ulonglong);
    same cuGraphLaunch(sys::CUgraphExec, sys::CUstream);
    same cuGraphExecDestroy(sys::CUgraphExec);
    same cuGraphDestroy(sys::CUgraph);
}

/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(crate) const OUT_OF_MEMORY: Status = sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY as Status;

/// `CUDA_ERROR_INVALID_VALUE`.
pub(crate) const INVALID_VALUE: Status = sys::CUresult::CUDA_ERROR_INVALID_VALUE as Status;

/// `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`.
pub(crate) const PEER_ACCESS_ALREADY_ENABLED: Status =
    sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED as Status;

/// The table of this process for running kernels, looked for on the first call.
///
/// # Errors
/// The library, or a function in it, is missing.
pub(crate) fn work_api() -> Result<&'static WorkApi, Problem> {
    static API: OnceLock<Result<WorkApi, Problem>> = OnceLock::new();
    let resolve =
        || WorkApi::resolve(library()?).map_err(|function| Problem::FunctionMissing { function });
    API.get_or_init(resolve).as_ref().map_err(Clone::clone)
}

/// The table of this process, looked for on the first call.
///
/// # Errors
/// The library, or a function in it, is missing.
pub(crate) fn api() -> Result<&'static Api, Problem> {
    static API: OnceLock<Result<Api, Problem>> = OnceLock::new();
    API.get_or_init(load).as_ref().map_err(Clone::clone)
}

fn load() -> Result<Api, Problem> {
    Api::resolve(library()?).map_err(|function| Problem::FunctionMissing { function })
}

fn library() -> Result<&'static libloading::Library, Problem> {
    // SAFETY: loading the vendor's driver library runs its initialisers, nothing else.
    if !unsafe { sys::is_culib_present() } {
        return Err(Problem::LibraryMissing { tried: names() });
    }
    // SAFETY: as above; the library is there, and stays loaded for good.
    Ok(unsafe { sys::culib() })
}

/// The file names under which `cudarc` looks for the library, without the variants
/// that carry a toolkit version in the stem.
fn names() -> Vec<String> {
    let mut names = cudarc::get_lib_name_candidates("cuda");
    names.retain(|name| !name.contains("64"));
    if cfg!(windows) {
        names.extend(cudarc::get_lib_name_candidates("nvcuda").into_iter().take(1));
    }
    let mut seen = std::collections::HashSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_that_drivers_install_are_among_those_tried() {
        let names = names();
        assert!(!names.is_empty() && names.len() < 10, "{names:?}");
        if cfg!(target_os = "linux") {
            assert!(names.iter().any(|n| n == "libcuda.so.1"), "{names:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_library_without_the_functions_is_refused_by_name() {
        // SAFETY: the C library is loaded already.
        let library = unsafe { libloading::Library::new("libc.so.6") }.unwrap();
        assert_eq!(Api::resolve(&library).err(), Some("cuInit"));
    }
}
