//! The models of `models/nano`, baked in.

/// Forces the alignment that tensor data has in a mapped file.
#[repr(C, align(64))]
struct Aligned<T: ?Sized>(T);

macro_rules! models {
    ($($name:literal)*) => {
        /// File names and bytes.
        pub(super) static MODELS: &[(&str, &[u8])] = &[$(($name, {
            static BYTES: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(
                env!("CARGO_MANIFEST_DIR"), "/../../models/nano/", $name
            )));
            &BYTES.0
        })),*];
    };
}

models! {
    "nano-code-Q4_K_M.gguf"
    "nano-dflash-Q8_0.gguf"
    "nano-scorer-Q8_0.gguf"
}
