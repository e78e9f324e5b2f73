//! What outside the driver library explains that devices are missing.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::Path;

/// Through this file the library talks to the kernel module.
pub(crate) const NODE: &str = "/dev/nvidiactl";

/// Under WSL there is this one instead.
const WSL_NODE: &str = "/dev/dxg";

/// Variables that hide devices.
const HIDING: &[&str] = &["CUDA_VISIBLE_DEVICES"];

/// State of the device node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// There, and this user may open it.
    Open,
    /// There, but not for this user.
    Denied,
    /// Not there.
    Missing,
    /// Not known: another operating system, WSL, or an odd error.
    Unknown,
}

/// Environment and device node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Surroundings {
    /// Variables that hide devices, with their values.
    pub(crate) hiding: Vec<(&'static str, String)>,
    /// The device node.
    pub(crate) node: Node,
}

impl Surroundings {
    /// Of this process, now.
    pub(crate) fn here() -> Self {
        let value = |&name| std::env::var(name).ok().map(|value| (name, value));
        Self { hiding: HIDING.iter().filter_map(value).collect(), node: node() }
    }
}

fn node() -> Node {
    if !cfg!(target_os = "linux") || Path::new(WSL_NODE).exists() {
        return Node::Unknown;
    }
    state(Path::new(NODE))
}

/// Whether a device node is there and may be opened.
fn state(path: &Path) -> Node {
    match OpenOptions::new().read(true).write(true).open(path) {
        Ok(_) => Node::Open,
        Err(error) => match error.kind() {
            ErrorKind::NotFound => Node::Missing,
            ErrorKind::PermissionDenied => Node::Denied,
            _ => Node::Unknown,
        },
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_open_missing_or_odd() {
        assert_eq!(state(Path::new("/dev/null")), Node::Open);
        assert_eq!(state(Path::new("/dev/no-such-node")), Node::Missing);
        assert_eq!(state(Path::new("/dev")), Node::Unknown);
    }
}
