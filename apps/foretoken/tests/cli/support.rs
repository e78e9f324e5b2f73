//! Running the binary.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use foretoken::format::{GgufFile, GgufWriter, OpenOptions, TensorSource, Value as Setting};
use foretoken::tensor::Shape;
use serde_json::Value;

/// In the warning that `auto` passed over a GPU.
pub(crate) const PASSED_OVER: &str = " is not used, as this build has no kernels for it; using ";

/// What a run left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    fn new(output: Output) -> Self {
        let stderr = String::from_utf8(output.stderr).unwrap();
        // A GPU without kernels in this build is always spoken of; no test here is about it.
        let lines = stderr.split_inclusive('\n').filter(|line| !line.contains(PASSED_OVER));
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: lines.collect(),
        }
    }

    /// Stdout of a run that went well.
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// The one JSON value on stdout of a run that went well.
    pub(crate) fn json(self) -> Value {
        assert_eq!(self.stderr, "", "nothing but JSON is said");
        let text = self.ok();
        assert_eq!(text.lines().count(), 1, "one line: {text}");
        serde_json::from_str(&text).unwrap()
    }

    /// The message of a run that failed as it should: exit code 1, nothing on stdout, one
    /// line on stderr.
    pub(crate) fn failure(self) -> String {
        assert_eq!(self.code, Some(1), "{self:?}");
        assert_eq!(self.stdout, "");
        let message = self.stderr.strip_prefix("error: ").expect(&self.stderr);
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(message.ends_with('\n'));
        message.trim_end().to_owned()
    }

    /// The message of a run that was told nonsense.
    pub(crate) fn bad_usage(self) -> String {
        assert_eq!(self.code, Some(2), "{self:?}");
        assert_eq!(self.stdout, "");
        assert!(self.stderr.starts_with("error: "), "{self:?}");
        self.stderr
    }
}

pub(crate) fn command<S: AsRef<OsStr>>(args: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foretoken"));
    // Times of steps are kept between runs, but not in the user's own cache.
    command.env("FORETOKEN_CACHE", env!("CARGO_TARGET_TMPDIR"));
    command.args(args).env_remove("FORETOKEN_MODELS").stdin(Stdio::null());
    command
}

/// Runs to the end with stdin closed.
pub(crate) fn run<S: AsRef<OsStr>>(args: &[S]) -> Ran {
    Ran::new(command(args).output().unwrap())
}

/// Runs to the end with these bytes on stdin.
pub(crate) fn run_with_stdin(args: &[&str], stdin: &[u8]) -> Ran {
    let mut command = command(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Small enough for the pipe, and dropped at once so that the child sees the end.
    child.stdin.take().unwrap().write_all(stdin).unwrap();
    Ran::new(child.wait_with_output().unwrap())
}

/// A file of `models/nano`.
pub(crate) fn nano(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/nano").join(name)
}

/// A path as an argument.
pub(crate) fn arg(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A token that is a byte of a character: the vocabulary has no token for the whole.
pub(crate) fn part_of_a_character() -> u64 {
    ids_of("日".as_bytes())[0].as_u64().unwrap()
}

/// The ids that `tokenize` gives for a text on stdin.
pub(crate) fn ids_of(text: &[u8]) -> Value {
    run_with_stdin(&["tokenize", "--json"], text).json()["ids"].clone()
}

/// What is different in a model made from another.
#[derive(Default)]
pub(crate) struct Changes<'a> {
    /// Settings set anew, or added.
    pub(crate) settings: &'a [(&'a str, Setting)],
    /// The tensor whose bytes are all 0xff, which is a NaN in every type of float.
    pub(crate) broken: &'a str,
    /// What this tensor is called.
    pub(crate) renamed: Option<(&'a str, &'a str)>,
    /// The tensors with this ending get rows of so many zeros.
    pub(crate) widened: Option<(&'a str, usize)>,
    /// The head becomes a tensor of its own, and the embedding of this token NaN.
    pub(crate) blind_to: Option<u64>,
}

/// Writes a model of `models/nano` with changes.
pub(crate) fn changed(name: &str, to: &Path, changes: &Changes<'_>) {
    let file = GgufFile::open(&nano(name), &OpenOptions::default()).unwrap();
    let mut writer = GgufWriter::new(to);
    for (key, value) in file.metadata().iter() {
        if changes.settings.iter().all(|(other, _)| *other != key) {
            writer.metadata(key, value.clone()).unwrap();
        }
    }
    for (key, value) in changes.settings {
        writer.metadata(key, value.clone()).unwrap();
    }
    let mut data = Vec::new();
    for info in file.tensors() {
        let (mut shape, mut bytes) = (info.shape(), file.data(info).to_vec());
        if let Some((ending, width)) = changes.widened
            && info.name().ends_with(ending)
        {
            shape = Shape::new(&[shape.rows(), width]).unwrap();
            bytes = vec![0; info.dtype().bytes_for(shape.elements()).unwrap()];
        }
        if info.name() == changes.broken {
            bytes.fill(0xff);
        }
        if let (Some(token), "token_embd.weight") = (changes.blind_to, info.name()) {
            writer.tensor("output.weight", info.dtype(), shape).unwrap();
            data.push(bytes.clone());
            let row = bytes.len() / shape.rows();
            bytes[token as usize * row..][..row].fill(0xff);
        }
        let renamed = changes.renamed.filter(|(old, _)| *old == info.name());
        let name = renamed.map_or(info.name(), |(_, new)| new);
        writer.tensor(name, info.dtype(), shape).unwrap();
        data.push(bytes);
    }
    let mut body = writer.begin(std::fs::File::create(to).unwrap()).unwrap();
    data.iter().for_each(|bytes| body.data(bytes).unwrap());
}
