//! What is embedded is what the manifest says, and every kernel keeps to the rules that
//! the driver counts on.

use foretoken_build::manifest::{ImageKind as Listed, Manifest};
use foretoken_kernels_cuda::{ImageKind, architectures, images, key, manifest};

fn listed() -> Manifest {
    Manifest::from_json(manifest()).unwrap()
}

#[test]
fn the_manifest_lists_what_is_embedded() {
    let listed = listed();
    assert_eq!(listed.images.len(), images().len());
    assert_eq!((listed.key.as_str(), listed.architectures()), (key(), architectures().to_vec()));
    assert_eq!(images().is_empty(), cfg!(not(feature = "embed")));
    for (entry, image) in listed.images.iter().zip(images()) {
        assert_eq!((entry.arch.as_str(), entry.bytes as usize), (image.arch, image.bytes.len()));
        assert_eq!(entry.kind == Listed::Ptx, image.kind == ImageKind::Portable);
        assert!(entry.file.starts_with(&format!("{}.", image.family)), "{}", entry.file);
        // The magic number of a fatbin, where the driver's loader may expect it.
        assert_eq!(image.bytes.get(..4), Some(&[0x50, 0xed, 0x55, 0xba][..]));
        assert!(image.bytes.as_ptr().addr().is_multiple_of(64));
    }
}

/// A kernel that only some architectures have says so in its name: `linear_sm90a`.
#[test]
fn every_architecture_has_the_kernels_that_do_not_say_otherwise() {
    let listed = listed();
    let machine = listed.images.iter().filter(|image| image.kind == Listed::Cubin);
    let mut first: Vec<(&str, Vec<&str>)> = Vec::new();
    for image in machine {
        let family = image.file.split('.').next().unwrap_or_default();
        let mut names: Vec<&str> = image.kernels.iter().map(|k| k.name.as_str()).collect();
        assert!(names.iter().all(|name| !name.starts_with("_Z")), "not extern \"C\": {names:?}");
        names.retain(|name| !name.contains("_sm"));
        names.sort_unstable();
        match first.iter().find(|(known, _)| *known == family) {
            Some((_, known)) => assert_eq!(&names, known, "{}", image.file),
            None => first.push((family, names)),
        }
    }
}
