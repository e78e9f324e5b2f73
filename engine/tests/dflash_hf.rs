//! Settings of drafts in a `config.json`, and what is wrong with them.

mod dflash_support;

use std::path::Path;

use dflash_support::*;
use foretoken::Error;
use foretoken::speculate::dflash::{DflashConfig, DflashFault, DraftLayer};
use serde_json::{Value, json};

const FOLDER: &str = "draft";
const FULL: DraftLayer = DraftLayer { window: None, causal: false };

fn read(config: &Value) -> Result<DflashConfig, Error> {
    DflashConfig::from_hf(Path::new(FOLDER), config)
}

/// The base config with one value set, at top level or (`a/b`) one level down.
fn with(key: &str, value: Value) -> Value {
    changed(hf_config(), key, value)
}

fn changed(mut config: Value, key: &str, value: Value) -> Value {
    match key.split_once('/') {
        Some((object, key)) => config[object][key] = value,
        None => config[key] = value,
    }
    config
}

fn without(key: &str) -> Value {
    let mut config = hf_config();
    let object = match key.split_once('/') {
        Some((object, _)) => &mut config[object],
        None => &mut config,
    };
    object.as_object_mut().unwrap().remove(key.rsplit('/').next().unwrap());
    config
}

#[test]
fn a_sound_config_reads_like_the_gguf_file() {
    let hf = read(&hf_config()).unwrap();
    let mut gguf = Draft::upstream().open().unwrap().config;
    gguf.target_depth = Some(9);
    assert_eq!(hf, gguf);
}

#[test]
fn values_in_dflash_config_go_first() {
    let c = read(&with("dflash_config/block_size", json!(12))).unwrap();
    assert_eq!(c.block, 12);
    // Null counts as absent.
    let c = read(&with("dflash_config/block_size", json!(null))).unwrap();
    assert_eq!(c.block, BLOCK);
    let top = changed(without("dflash_config/mask_token_id"), "mask_token_id", json!(7));
    assert_eq!(read(&top).unwrap().mask_token, 7);
    let top = changed(without("dflash_config/target_layer_ids"), "target_layer_ids", json!([2]));
    assert_eq!(read(&top).unwrap().target_layers, [2]);
}

#[test]
fn needed_settings_are_missed_by_name() {
    for key in [
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "rms_norm_eps",
        "rope_theta",
        "block_size",
        "dflash_config/mask_token_id",
    ] {
        let named = key.rsplit('/').next().unwrap();
        assert_eq!(missing_key(read(&without(key)), FOLDER), named);
    }
    let mut bare = without("dflash_config/target_layer_ids");
    bare.as_object_mut().unwrap().remove("num_target_layers");
    assert_eq!(missing_key(read(&bare), FOLDER), "target_layer_ids");
}

#[test]
fn the_rotary_base_may_lie_in_rope_parameters() {
    let config = changed(without("rope_theta"), "rope_parameters", json!({"rope_theta": 5e5}));
    assert_eq!(read(&config).unwrap().attention.theta, 5e5);
    // Frequencies that are scaled, or a base that is no number, are not overlooked.
    for (object, key) in [("rope_parameters", "rope_type"), ("rope_scaling", "type")] {
        for (kind, fine) in [("yarn", false), ("linear", false), ("default", true)] {
            let config = with(object, json!({ key: kind, "rope_theta": 1e6, "factor": 4.0 }));
            match (read(&config), fine) {
                (Ok(_), true) => {}
                (result, false) => match draft_fault(result, FOLDER) {
                    DflashFault::Unsupported { key, .. } => assert_eq!(key, object),
                    other => panic!("{other}"),
                },
                (Err(e), true) => panic!("{e}"),
            }
        }
    }
    let config = with("rope_theta", json!("many"));
    assert_eq!(bad_key(read(&config), FOLDER), "rope_theta");
}

/// The table of layers read when none are listed, for five and other counts; from the
/// rule of z-lab's code as Python rounds (ties to even).
#[test]
fn layers_are_computed_when_none_are_listed() {
    let ids = |layers: usize, depth: usize| {
        let config = without("dflash_config/target_layer_ids");
        let config = changed(config, "num_hidden_layers", json!(layers));
        read(&changed(config, "num_target_layers", json!(depth))).map(|c| c.target_layers)
    };
    for (depth, five) in [
        (24, [1, 6, 11, 16, 21]),
        (28, [1, 7, 13, 19, 25]),
        (32, [1, 8, 15, 22, 29]),
        (36, [1, 9, 17, 25, 33]),
        (40, [1, 10, 19, 28, 37]),
        (48, [1, 12, 23, 34, 45]),
        (64, [1, 16, 31, 46, 61]),
    ] {
        assert_eq!(ids(5, depth).unwrap(), five, "{depth}");
    }
    assert_eq!(ids(1, 33).unwrap(), [16]);
    // 1 + 5/2 = 3.5 and 1 + 3/2 = 2.5: both to the even number.
    assert_eq!(ids(3, 9).unwrap(), [1, 4, 6]);
    assert_eq!(ids(3, 7).unwrap(), [1, 2, 4]);
    assert_eq!(bad_key(ids(2, 3), FOLDER), "num_target_layers");
    assert_eq!(draft_fault(ids(3, 4), FOLDER), DflashFault::RepeatedLayer(1));
}

#[test]
fn windows_follow_the_layer_types_and_blocks_the_windows() {
    let types = json!(["sliding_attention", "full_attention"]);
    let base = changed(with("layer_types", types), "sliding_window", json!(2048));
    let slide = DraftLayer { window: Some(2048), causal: true };
    for used in [json!(true), json!(null)] {
        let config = changed(base.clone(), "use_sliding_window", used);
        assert_eq!(read(&config).unwrap().layers, [slide, FULL]);
    }
    // Windows that are switched off take causality with them.
    let off = changed(base.clone(), "use_sliding_window", json!(false));
    assert_eq!(read(&off).unwrap().layers, [FULL, FULL]);
    // The override, in both spellings, holds for all layers.
    for key in ["is_causal", "dflash_config/is_causal", "dflash_config/causal"] {
        for causal in [true, false] {
            let config = changed(base.clone(), key, json!(causal));
            let layers = read(&config).unwrap().layers;
            assert!(layers.iter().all(|l| l.causal == causal), "{key}");
            assert_eq!((layers[0].window, layers[1].window), (Some(2048), None));
        }
        assert_eq!(
            bad_key(read(&changed(base.clone(), key, json!(1))), FOLDER),
            key.rsplit('/').next().unwrap()
        );
    }
    // A top-level `causal` belongs to other models.
    assert_eq!(read(&changed(base.clone(), "causal", json!(true))).unwrap().layers, [slide, FULL]);

    let none = changed(base.clone(), "sliding_window", json!(null));
    assert_eq!(missing_key(read(&none), FOLDER), "sliding_window");
    for types in [json!(["full_attention"]), json!("full_attention"), json!(["a", "b"])] {
        assert_eq!(bad_key(read(&with("layer_types", types)), FOLDER), "layer_types");
    }
    // Without a list it is those from `max_window_layers` on.
    let list = changed(with("use_sliding_window", json!(true)), "sliding_window", json!(64));
    assert_eq!(missing_key(read(&list), FOLDER), "layer_types");
    let list = changed(list, "max_window_layers", json!(1));
    let slide = DraftLayer { window: Some(64), causal: true };
    assert_eq!(read(&list).unwrap().layers, [FULL, slide]);
    let list = changed(list, "max_window_layers", json!(-1));
    assert_eq!(bad_key(read(&list), FOLDER), "max_window_layers");
}

#[test]
fn other_kinds_of_drafts_are_refused() {
    for key in ["conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k"] {
        for place in [key.to_owned(), format!("dflash_config/{key}")] {
            let fault = draft_fault(read(&with(&place, json!(2))), FOLDER);
            assert_eq!(fault, DflashFault::Dflash2 { found: key.to_owned() });
        }
    }
    for (key, value, neutral) in [
        ("input_embedding_scale", json!(22.6), json!(1.0)),
        ("output_multiplier", json!(0.25), json!(1)),
        ("output_multiplier", json!("one"), json!(null)),
        ("final_logit_softcapping", json!(30.0), json!(null)),
        ("hidden_act", json!("gelu"), json!("silu")),
    ] {
        match draft_fault(read(&with(key, value)), FOLDER) {
            DflashFault::Unsupported { key: found, .. } => assert_eq!(found, key),
            other => panic!("{key}: {other}"),
        }
        assert!(read(&with(key, neutral)).is_ok(), "{key}");
    }
    let nested = with("dflash_config/output_multiplier", json!(2.0));
    assert!(matches!(draft_fault(read(&nested), FOLDER), DflashFault::Unsupported { .. }));

    let mut model = without("dflash_config");
    assert_eq!(missing_key(read(&model), FOLDER), "mask_token_id");
    model["architectures"] = json!(["Qwen3ForCausalLM"]);
    let found = "Qwen3ForCausalLM".to_owned();
    assert_eq!(draft_fault(read(&model), FOLDER), DflashFault::NotDflash { found });
    model["architectures"] = json!(null);
    let found = "qwen3".to_owned();
    assert_eq!(draft_fault(read(&model), FOLDER), DflashFault::NotDflash { found });
    let found = "unknown".to_owned();
    assert_eq!(draft_fault(read(&json!([])), FOLDER), DflashFault::NotDflash { found });
}

#[test]
fn hostile_values_are_bad_settings() {
    let long = "9".repeat(5000);
    for key in [
        "hidden_size",
        "intermediate_size",
        "vocab_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "num_target_layers",
        "block_size",
        "dflash_config/block_size",
    ] {
        let named = key.rsplit('/').next().unwrap();
        for value in [json!(0), json!(-4), json!(1.5), json!(u64::MAX), json!(long), json!([[]])] {
            assert_eq!(bad_key(read(&with(key, value)), FOLDER), named);
        }
    }
    for (key, value, named) in [
        ("block_size", json!(1), "block_size"),
        ("block_size", json!(65), "block_size"),
        ("num_key_value_heads", json!(3), "head_count_kv"),
        ("head_dim", json!(7), "rope.dimension_count"),
        ("rope_theta", json!(-1.0), "rope.freq_base"),
        ("rms_norm_eps", json!(0.0), "layer_norm_rms_epsilon"),
        ("dflash_config/mask_token_id", json!(-1), "mask_token_id"),
        ("dflash_config/mask_token_id", json!(u64::MAX), "mask_token_id"),
        ("dflash_config/target_layer_ids", json!([]), "target_layer_ids"),
        ("dflash_config/target_layer_ids", json!({}), "target_layer_ids"),
        ("dflash_config/target_layer_ids", json!([1, -1]), "target_layer_ids"),
        ("dflash_config/target_layer_ids", json!([u64::MAX]), "target_layer_ids"),
        ("dflash_config/target_layer_ids", json!(vec![1; 5000]), "target_layer_ids"),
    ] {
        assert_eq!(bad_key(read(&with(key, value)), FOLDER), named);
    }
    let twice = with("dflash_config/target_layer_ids", json!([1, 4, 4]));
    assert_eq!(draft_fault(read(&twice), FOLDER), DflashFault::RepeatedLayer(4));
    // As listed, in any order.
    let order = read(&with("dflash_config/target_layer_ids", json!([7, 1]))).unwrap();
    assert_eq!(order.target_layers, [7, 1]);
}
