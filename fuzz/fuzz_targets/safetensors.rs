//! Any bytes as a safetensors file.

#![no_main]

use std::path::Path;

use foretoken::format::{SafetensorsModel, TensorSource};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    match SafetensorsModel::from_bytes(Path::new("fuzz.safetensors"), data.to_vec().into()) {
        Err(e) => {
            let line = e.to_string();
            assert!(line.len() < 1000 && !line.contains(char::is_control), "{line:?}");
        }
        Ok(model) => {
            let mut total = 0;
            for t in model.tensors() {
                assert_eq!(t.dtype().bytes_for(t.shape().elements()), Some(t.bytes()));
                assert_eq!(model.data(t).len(), t.bytes());
                assert_eq!(model.require(t.name()).map(|t| t.shape()).ok(), Some(t.shape()));
                total += t.bytes();
            }
            assert!(total < data.len(), "tensors share bytes");
        }
    }
});
