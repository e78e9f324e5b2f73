//! Compiling a folder of CUDA sources: each for each architecture, several at once, none
//! twice.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use crate::archs::{self, CUDA_VARIABLE, CudaArch};
use crate::cache::{Cache, Key};
use crate::manifest::{Image, ImageKind, Manifest};
use crate::tools::{Search, Tool};
use crate::{BuildFault, jobs, ptxas};

/// The variable that says how many compilers may run at once.
pub const JOBS_VARIABLE: &str = "FORETOKEN_BUILD_JOBS";

/// Variables that a build depends on.
pub const VARIABLES: &[&str] =
    &[CUDA_VARIABLE, JOBS_VARIABLE, "FORETOKEN_NVCC", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV"];

/// Arguments of every call, without those that name files. Subnormals are kept (block
/// formats are decoded through them) and division is exact unless a kernel says otherwise.
const ARGUMENTS: &[&str] = &[
    "-fatbin",
    "-O3",
    "-std=c++17",
    "--compress-mode=size",
    "-Xcompiler=-Wall",
    "-Werror=all-warnings",
];

/// Of the images' names.
const EXTENSION: &str = "fatbin";

/// The build of one kernel crate.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The crate: sources are `src/*.cu`, headers `include/*`.
    pub folder: PathBuf,
    /// Where `images.rs` and the images go.
    pub out: PathBuf,
}

/// One call of the compiler.
struct Job<'a> {
    family: &'a str,
    source: &'a Path,
    arch: CudaArch,
    kind: ImageKind,
    key: Key,
}

/// What came of it.
struct Made {
    code: Vec<u8>,
    report: String,
}

impl Plan {
    /// Compiles all and writes `images.rs`, the images and `manifest.json`. `variable`
    /// reads the environment.
    ///
    /// # Errors
    /// No compiler is found, a list of architectures is wrong, a source does not compile,
    /// or the folder cannot be written to.
    pub fn run(&self, variable: &dyn Fn(&str) -> Option<OsString>) -> Result<(), BuildFault> {
        let text = |name: &str| variable(name).map(|value| value.to_string_lossy().into_owned());
        let archs = archs::cuda(text(CUDA_VARIABLE).as_deref())?;
        let root = self.folder.parent().map(Path::to_owned);
        let nvcc = Search { variable, root, system: PathBuf::from("/") }.nvcc()?;
        let sources = files(&self.folder.join("src"), Some("cu"))?;
        let shared = self.shared_key(&nvcc)?;
        let mut jobs = Vec::new();
        for source in &sources {
            let family = source.file_stem().and_then(|stem| stem.to_str()).unwrap_or("kernels");
            let key = shared.with_files(&self.folder, std::slice::from_ref(source))?;
            for &arch in &archs {
                let mut push = |kind| {
                    let key = key.with("code", argument(arch, kind).as_bytes());
                    jobs.push(Job { family, source, arch, kind, key });
                };
                push(ImageKind::Cubin);
                if !arch.specific {
                    push(ImageKind::Ptx);
                }
            }
        }
        let cache = Cache::new(self.cache_folder());
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let free = fs::read_to_string("/proc/meminfo").ok();
        let free = free.and_then(|text| jobs::memory_available(&text));
        let limit = jobs::limit(text(JOBS_VARIABLE).and_then(|n| n.parse().ok()), cores, free);
        let made = jobs::run(&jobs, limit, |job| self.compile(&nvcc, &cache, job));
        self.write(&nvcc, &archs, &jobs, made.into_iter().collect::<Result<_, _>>()?)
    }

    /// Writes an `images.rs` without images.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn nothing(&self) -> Result<(), BuildFault> {
        self.write_tables(&[], &[], &Manifest::default())
    }

    /// The key of what all calls have in common: compiler, arguments, headers.
    fn shared_key(&self, nvcc: &Tool) -> Result<Key, BuildFault> {
        let headers = files(&self.folder.join("include"), None)?;
        let key = Key::new().with("nvcc", nvcc.version.to_string().as_bytes());
        let key = ARGUMENTS.iter().fold(key, |key, a| key.with("argument", a.as_bytes()));
        key.with_files(&self.folder, &headers)
    }

    /// Beside the profiles of the target folder, so that they share it.
    fn cache_folder(&self) -> PathBuf {
        // OUT_DIR is target/PROFILE/build/CRATE-HASH/out.
        self.out.ancestors().nth(4).unwrap_or(&self.out).join("kernel-cache")
    }

    fn compile(&self, nvcc: &Tool, cache: &Cache, job: &Job<'_>) -> Result<Made, BuildFault> {
        let (code_key, report_key) = (job.key.with("code", b""), job.key.with("report", b""));
        if let (Some(code), Some(report)) = (cache.get(code_key)?, cache.get(report_key)?) {
            return Ok(Made { code, report: String::from_utf8_lossy(&report).into_owned() });
        }
        let path = self.out.join(format!("{}.part", file_name(job)));
        let mut command = Command::new(&nvcc.path);
        command.args(ARGUMENTS).arg(argument(job.arch, job.kind));
        if job.kind != ImageKind::Ptx {
            // In portable code the driver would find it again.
            command.arg("--ptxas-options=-v");
        }
        command.arg("-I").arg(self.folder.join("include")).arg("-o").arg(&path).arg(job.source);
        let report = jobs::command(&mut command)?;
        let code = fs::read(&path).map_err(|e| BuildFault::io(&path, e))?;
        fs::remove_file(&path).map_err(|e| BuildFault::io(&path, e))?;
        cache.put(code_key, &code)?;
        cache.put(report_key, report.as_bytes())?;
        Ok(Made { code, report })
    }

    fn write(
        &self,
        nvcc: &Tool,
        archs: &[CudaArch],
        jobs: &[Job<'_>],
        made: Vec<Made>,
    ) -> Result<(), BuildFault> {
        // Of an earlier list of architectures, or of a source that is gone.
        for old in files(&self.out, Some(EXTENSION))? {
            fs::remove_file(&old).map_err(|e| BuildFault::io(&old, e))?;
        }
        let mut images = Vec::with_capacity(jobs.len());
        for (job, made) in jobs.iter().zip(&made) {
            let file = file_name(job);
            self.put(&file, &made.code)?;
            let kernels = match job.kind {
                ImageKind::Ptx => Vec::new(),
                _ => ptxas::parse(&made.report)?,
            };
            let (arch, bytes) = (job.arch.to_string(), made.code.len() as u64);
            images.push(Image { arch, kind: job.kind, file, bytes, kernels });
        }
        let key = jobs
            .iter()
            .fold(Key::new(), |key, job| key.with(&file_name(job), job.key.to_string().as_bytes()));
        let toolchain = format!("nvcc {}", nvcc.version);
        let manifest = Manifest { toolchain, key: key.to_string(), images };
        let archs: Vec<String> = archs.iter().map(ToString::to_string).collect();
        self.write_tables(&archs, jobs, &manifest)
    }

    /// `manifest.json`, and the tables that the crate includes.
    fn write_tables(
        &self,
        archs: &[String],
        jobs: &[Job<'_>],
        manifest: &Manifest,
    ) -> Result<(), BuildFault> {
        self.put("manifest.json", manifest.to_json()?.as_bytes())?;
        let mut text = String::from("// Written by build.rs.\n\nstatic IMAGES: &[Image] = &[\n");
        for (job, image) in jobs.iter().zip(&manifest.images) {
            let kind = if job.kind == ImageKind::Ptx { "Portable" } else { "Machine" };
            let (family, arch, file) = (job.family, &image.arch, &image.file);
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "    Image {{ family: {family:?}, arch: {arch:?}, kind: ImageKind::{kind}, \
                 bytes: &Aligned(*include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{file}\"))).0 }},"
            );
        }
        let _ = writeln!(text, "];\nstatic ARCHITECTURES: &[&str] = &{archs:?};");
        let _ = writeln!(text, "static KEY: &str = {:?};", manifest.key);
        text.push_str(
            "static MANIFEST: &str = include_str!(concat!(env!(\"OUT_DIR\"), \"/manifest.json\"));\n",
        );
        self.put("images.rs", text.as_bytes())
    }

    fn put(&self, name: &str, content: &[u8]) -> Result<(), BuildFault> {
        let path = self.out.join(name);
        fs::write(&path, content).map_err(|e| BuildFault::io(&path, e))
    }
}

fn argument(arch: CudaArch, kind: ImageKind) -> String {
    match kind {
        ImageKind::Ptx => arch.portable_code(),
        _ => arch.machine_code(),
    }
}

fn file_name(job: &Job<'_>) -> String {
    let kind = if job.kind == ImageKind::Ptx { "compute" } else { "sm" };
    format!("{}.{kind}_{}.{EXTENSION}", job.family, job.arch)
}

/// Files of a folder in order of name, with one extension or any; none if there is no
/// such folder.
fn files(folder: &Path, extension: Option<&str>) -> Result<Vec<PathBuf>, BuildFault> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(folder).map_err(|e| BuildFault::io(folder, e))?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| BuildFault::io(folder, e))?.path();
        let wanted = extension.is_none_or(|wanted| path.extension().is_some_and(|e| e == wanted));
        if wanted && path.is_file() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
