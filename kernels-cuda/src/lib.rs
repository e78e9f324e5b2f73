//! The CUDA kernels of Foretoken.
//!
//! Sources lie beside this file, one `.cu` for each family of operations, with what they
//! share in `../include`. With the feature `embed` the build script compiles each source
//! for each architecture (machine code, and PTX for those that newer devices can run) and
//! embeds the results, compressed; [`images`] hands them out. Without the feature there
//! are none. `FORETOKEN_CUDA_ARCHS=86,90a` limits the architectures.
//!
//! Every kernel is `extern "C"`, named like its operation, and takes an `ft::Site` as its
//! first parameter: where to report that the contents of device memory break a rule.

/// What an image holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageKind {
    /// Machine code of one architecture.
    Machine,
    /// Portable code, compiled by the driver for its device.
    Portable,
}

/// Code of one source for one architecture, in a container that the driver loads.
#[derive(Clone, Copy)]
pub struct Image {
    /// The source: `linear` for `linear.cu`.
    pub family: &'static str,
    /// Architecture as nvcc names it: `86`, `90a`.
    pub arch: &'static str,
    /// Machine or portable code.
    pub kind: ImageKind,
    /// A compressed fatbin with this code alone, aligned to 64 bytes.
    pub bytes: &'static [u8],
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { family, arch, kind, bytes } = self;
        write!(f, "Image({family} {arch} {kind:?}, {} bytes)", bytes.len())
    }
}

/// Gives embedded bytes the alignment that the driver's loader may count on.
#[cfg_attr(not(feature = "embed"), expect(dead_code, reason = "nothing is embedded"))]
#[repr(C, align(64))]
struct Aligned<T: ?Sized>(T);

include!(concat!(env!("OUT_DIR"), "/images.rs"));

/// All images of this build, by family, then architecture.
pub fn images() -> &'static [Image] {
    IMAGES
}

/// Architectures there is machine code for, in the order of the build.
pub fn architectures() -> &'static [&'static str] {
    ARCHITECTURES
}

/// Hash of sources, compiler and arguments: equal keys mean equal code. Empty without
/// kernels.
pub fn key() -> &'static str {
    KEY
}

/// The build's manifest, as JSON: every image with the registers, shared memory and
/// spills of its kernels.
pub fn manifest() -> &'static str {
    MANIFEST
}
