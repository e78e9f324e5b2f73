//! What the build scripts of the kernel crates share: finding the GPU compilers
//! (`tools`, `version`), the architectures to compile for (`archs`), telling whether
//! anything changed (`cache`), running compilers side by side (`jobs`), reading what
//! `ptxas` says of each kernel (`ptxas`), and writing down what was built (`manifest`).
//!
//! Nothing here knows a kernel. It is used at build time only, prints nothing and reads
//! the environment through what it is handed, so that all of it can be tested without a
//! GPU compiler.

pub mod archs;
pub mod cache;
pub mod cuda;
pub mod jobs;
pub mod manifest;
pub mod ptxas;
pub mod tools;
pub mod version;

use version::Version;

/// What stops a build. Messages are one line and say what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildFault {
    /// There is no such compiler in any of the usual places.
    #[error("no {tool} found (looked for {}): {remedy}", looked.join(", "))]
    NoTool {
        /// `nvcc`, or what compiles HIP.
        tool: &'static str,
        /// Files looked for, in order.
        looked: Vec<String>,
        /// How to get one.
        remedy: &'static str,
    },
    /// A compiler was named by a variable, and is not what it should be.
    #[error("{path} does not tell its version as {tool} does: {words}")]
    NotATool {
        /// The file.
        path: String,
        /// What it was taken for.
        tool: &'static str,
        /// What it said, or why it did not run.
        words: String,
    },
    /// The compiler cannot make what is wanted.
    #[error("{path} is version {found}, and {oldest} or newer is needed: {remedy}")]
    TooOld {
        /// The file.
        path: String,
        /// Its version.
        found: Version,
        /// The oldest that will do.
        oldest: Version,
        /// How to get a newer one.
        remedy: &'static str,
    },
    /// An architecture list holds something else.
    #[error(
        "{variable}: '{item}' is no architecture this build knows; write, for example, {example}"
    )]
    BadArch {
        /// The environment variable.
        variable: &'static str,
        /// The entry.
        item: String,
        /// A good list.
        example: &'static str,
    },
    /// An architecture list is set and empty.
    #[error("{variable} names no architecture: unset it, or write, for example, {example}")]
    NoArch {
        /// The environment variable.
        variable: &'static str,
        /// A good list.
        example: &'static str,
    },
    /// A command could not be run, or failed.
    #[error("{command}: {status}")]
    Command {
        /// The command line.
        command: String,
        /// How it ended.
        status: String,
        /// All it printed, many lines.
        output: String,
    },
    /// The compiler's report could not be read.
    #[error("line {line} of the ptxas report cannot be read: {text}")]
    Report {
        /// From 1.
        line: usize,
        /// The line.
        text: String,
    },
    /// A manifest is not one.
    #[error("kernel manifest: {0}")]
    Manifest(#[from] serde_json::Error),
    /// The operating system refused a file operation.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// The system's own words.
        source: std::io::Error,
    },
}

impl BuildFault {
    /// Ties a system error to the file it happened on.
    pub(crate) fn io(path: &std::path::Path, source: std::io::Error) -> Self {
        Self::Io { path: path.display().to_string(), source }
    }
}
