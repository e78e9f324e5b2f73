//! Faults of a real device under a whole model: each one clear line, and nothing hangs.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use foretoken::device::{Device, DeviceFault, Driver};
use foretoken::generate::{Cancel, Engine, EngineOptions, GenerateRequest, SessionOptions};
use foretoken_cuda::{CudaDriver, CudaOptions};

use crate::common::nano;
use crate::driver;

/// Set for the process whose context is killed.
const CHILD: &str = "FORETOKEN_TEST_CHILD";

fn load(device: Arc<dyn Device>) -> foretoken::Result<Arc<Engine>> {
    let model = nano().join("nano-code-Q4_K_M.gguf");
    let session = Some(SessionOptions::new(1024));
    Engine::load(&model, device, &EngineOptions::default(), session, &mut |_| {})
}

fn limited(bytes: u64) -> Arc<dyn Device> {
    let options = CudaOptions { memory_limit: Some(bytes), ..CudaOptions::from_environment() };
    CudaDriver::with_options(options).open(0).unwrap()
}

fn request() -> GenerateRequest {
    GenerateRequest {
        max_tokens: Some(8),
        ignore_eos: true,
        ..GenerateRequest::greedy(vec![5; 20])
    }
}

/// What does not fit is said before the load; what does not fit later is said by the
/// session, and the engine goes on.
#[test]
fn memory_runs_out_at_load_and_at_a_request() {
    if driver::open().is_none() {
        return;
    }
    let fault = load(limited(8 << 20)).err().unwrap().to_string();
    assert!(fault.contains("cuda:0") && fault.lines().count() == 1, "{fault}");
    let engine = load(limited(96 << 20)).unwrap();
    let mut sessions = Vec::new();
    let fault = loop {
        match engine.session(SessionOptions::new(1024)) {
            Ok(session) => sessions.push(session),
            Err(fault) => break fault,
        }
        assert!(sessions.len() < 1000, "nothing is ever refused");
    };
    assert!(matches!(fault, foretoken::Error::Device(DeviceFault::OutOfMemory { .. })), "{fault}");
    let last = sessions.last_mut().expect("one session fits");
    let run = |session| engine.generate(session, &request(), &Cancel::default(), &mut |_| {});
    assert_eq!(run(last).unwrap().ids.len(), 8);
    sessions.clear();
    assert!(engine.session(SessionOptions::new(1024)).is_ok());
}

/// A context that a foreign kernel killed.
#[test]
fn a_killed_context_ends_requests_with_its_words() {
    if std::env::var_os(CHILD).is_some() {
        return killed();
    }
    if driver::open().is_none() {
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "faults::a_killed_context_ends_requests_with_its_words"]);
    let mut child = child.env(CHILD, "1").stderr(Stdio::inherit()).spawn().unwrap();
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            panic!("it hangs");
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(status.success(), "{status}");
}

fn killed() {
    let engine = load(driver::open().unwrap()).unwrap();
    let mut session = engine.session(SessionOptions::new(1024)).unwrap();
    let cancel = Cancel::default();
    let mut run = || engine.generate(&mut session, &request(), &cancel, &mut |_| {});
    assert_eq!(run().unwrap().ids.len(), 8);
    crash::kill();
    let first = run().err().unwrap().to_string();
    assert!(first.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{first}");
    assert_eq!(first.lines().count(), 1, "{first}");
    let start = Instant::now();
    assert_eq!(run().err().unwrap().to_string(), first);
    let other = engine.session(SessionOptions::new(1024)).err().unwrap().to_string();
    assert_eq!(other, first);
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert_eq!(engine.device_info().memory_free, 0);
}

/// A kernel that writes where there is no memory, in the primary context, which is the
/// driver's, too.
mod crash {
    use std::ffi::{c_char, c_int, c_uint, c_void};
    use std::ptr;

    const PTX: &str = "
        .version 7.0
        .target sm_70
        .address_size 64
        .visible .entry crash() {
            .reg .b32 %value;
            .reg .b64 %place;
            mov.u32 %value, 7;
            mov.u64 %place, 16;
            st.global.u32 [%place], %value;
            ret;
        }\0";

    type Handle = *mut c_void;
    type Launch = unsafe extern "C" fn(
        Handle,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        Handle,
        *mut Handle,
        *mut Handle,
    ) -> c_uint;

    pub(super) fn kill() {
        // SAFETY: these are the C signatures of the driver API, called with live handles; the
        // kernel's fault is an error of the context, not of this process.
        unsafe {
            let library = libloading::Library::new("libcuda.so.1").unwrap();
            let (mut context, mut module, mut function) =
                (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
            let retain: libloading::Symbol<'_, unsafe extern "C" fn(*mut Handle, c_int) -> c_uint> =
                library.get(b"cuDevicePrimaryCtxRetain\0").unwrap();
            let push: libloading::Symbol<'_, unsafe extern "C" fn(Handle) -> c_uint> =
                library.get(b"cuCtxPushCurrent_v2\0").unwrap();
            let pop: libloading::Symbol<'_, unsafe extern "C" fn(*mut Handle) -> c_uint> =
                library.get(b"cuCtxPopCurrent_v2\0").unwrap();
            let load: libloading::Symbol<
                '_,
                unsafe extern "C" fn(*mut Handle, *const c_char) -> c_uint,
            > = library.get(b"cuModuleLoadData\0").unwrap();
            let find: libloading::Symbol<
                '_,
                unsafe extern "C" fn(*mut Handle, Handle, *const c_char) -> c_uint,
            > = library.get(b"cuModuleGetFunction\0").unwrap();
            let launch: libloading::Symbol<'_, Launch> = library.get(b"cuLaunchKernel\0").unwrap();
            assert_eq!(retain(&raw mut context, 0), 0);
            assert_eq!(push(context), 0);
            assert_eq!(load(&raw mut module, PTX.as_ptr().cast()), 0);
            assert_eq!(find(&raw mut function, module, c"crash".as_ptr()), 0);
            let (none, no) = (ptr::null_mut(), ptr::null_mut());
            assert_eq!(launch(function, 1, 1, 1, 1, 1, 1, 0, ptr::null_mut(), none, no), 0);
            pop(&raw mut context);
        }
    }
}
