//! Any bytes as a GGUF file.

#![no_main]

use std::path::Path;

use foretoken::format::{GgufFile, GgufWriter, TensorSource, Value};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let path = Path::new("fuzz.gguf");
    match GgufFile::from_bytes(path, data.to_vec().into()) {
        Err(e) => {
            let line = e.to_string();
            assert!(line.len() < 1000 && !line.contains(char::is_control), "{line:?}");
        }
        Ok(file) => {
            look_at_all_of(&file);
            // The first writing may leave out padding and order the data anew; after that
            // nothing changes any more.
            let once = written(&file);
            let again = GgufFile::from_bytes(path, once.clone().into()).expect("own file refused");
            assert_eq!(once, written(&again));
        }
    }
});

fn look_at_all_of(file: &GgufFile) {
    let m = file.metadata();
    for (key, value) in m.iter() {
        assert!(!value.to_string().contains('\n'));
        let json = serde_json::to_value(value).expect("a value without JSON");
        if let Value::Array(a) = value {
            assert_eq!(a.iter().count(), a.len());
            assert_eq!(json.as_array().map(Vec::len), Some(a.len()));
        }
        // Each either answers or refuses; none of them may do anything else.
        let answers = [
            m.str(key).is_ok(),
            m.bytes(key).is_ok(),
            m.u32(key).is_ok(),
            m.u64(key).is_ok(),
            m.i32(key).is_ok(),
            m.f32(key).is_ok(),
            m.f64(key).is_ok(),
            m.bool(key).is_ok(),
            m.str_array(key).is_ok_and(|a| a.is_some_and(|a| a.to_strs().is_ok())),
            m.u32_array(key).is_ok(),
            m.i32_array(key).is_ok(),
            m.f32_array(key).is_ok(),
            m.bool_array(key).is_ok(),
        ];
        std::hint::black_box(answers);
    }
    for t in file.tensors() {
        assert_eq!(t.dtype().bytes_for(t.shape().elements()), Some(t.bytes()));
        assert_eq!(file.data(t).len(), t.bytes());
        assert_eq!(file.require(t.name()).map(|t| t.shape()).ok(), Some(t.shape()));
    }
}

fn written(file: &GgufFile) -> Vec<u8> {
    let mut writer = GgufWriter::new(Path::new("again.gguf"));
    for (key, value) in file.metadata().iter() {
        writer.metadata(key, value.clone()).expect("a key that was read");
    }
    for t in file.tensors() {
        writer.tensor(t.name(), t.dtype(), t.shape()).expect("a tensor that was read");
    }
    let mut body = writer.begin(Vec::new()).expect("sizes that were read");
    for t in file.tensors() {
        body.data(&file.data(t)).expect("as long as declared");
    }
    body.finish().expect("all written")
}
