//! Tests which data an option selects, and which options are refused.

use std::path::{Path, PathBuf};

use super::*;

fn load(change: impl FnOnce(&mut DemoOptions)) -> Result<Inputs, DemoError> {
    let mut options = DemoOptions::default();
    change(&mut options);
    Inputs::load(&options)
}

fn refusal(change: impl FnOnce(&mut DemoOptions)) -> String {
    load(change).unwrap_err().to_string()
}

fn file<T: npyz::AutoSerialize>(
    directory: &Path,
    name: &str,
    columns: usize,
    values: &[T],
) -> PathBuf {
    let path = directory.join(name);
    npy::write(&path, columns, values).unwrap();
    path
}

#[test]
fn without_options_the_shipped_activations_and_their_routing_are_used() {
    let inputs = load(|_| ()).unwrap();
    assert_eq!((inputs.config.hidden, inputs.config.top_k), (384, 8));
    let batch = inputs.batch(0, 0);
    batch.check(&inputs.config).unwrap();
    assert_eq!(
        inputs.description,
        "1024 activations of a transformer (crates/demo/data), their skewed routing"
    );
    let sum: f32 = batch.weights[..8].iter().sum();
    assert!((sum - 1.0).abs() < 1e-5);
}

#[test]
fn ranks_and_steps_walk_through_the_rows_and_start_again_at_their_end() {
    let inputs = load(|_| ()).unwrap();
    let Tokens::Table(table) = &inputs.tokens else {
        panic!("a table")
    };
    assert_eq!(
        inputs.batch(1, 2).token(&inputs.config, 5),
        table.row((4 + 2) * 128 + 5)
    );
    assert_eq!(inputs.batch(2, 0).token(&inputs.config, 0), table.row(0));
}

#[test]
fn another_shape_is_generated_from_the_seed_alike_at_every_rank() {
    let shape = |seed| {
        load(|options| {
            options.hidden = Some(64);
            options.tokens = 16;
            options.seed = seed;
        })
    };
    let (one, same, other) = (shape(3).unwrap(), shape(3).unwrap(), shape(4).unwrap());
    one.batch(0, 1).check(&one.config).unwrap();
    assert_eq!(one.batch(2, 1), same.batch(2, 1));
    assert_ne!(one.batch(2, 1), other.batch(2, 1));
    assert_ne!(one.batch(2, 1), one.batch(2, 0));
    let zipf = load(|options| options.routing_kind = Some(RoutingKind::Zipf)).unwrap();
    assert_eq!(zipf.config.hidden, 1024);
}

#[test]
fn files_decide_hidden_and_top_k_and_an_option_may_only_repeat_them() {
    let directory = tempfile::tempdir().unwrap();
    let tokens = file(directory.path(), "t.npy", 16, &[0x3f80u16; 48]);
    let routing = file(directory.path(), "r.npy", 2, &[0i32, 1, 2, -1, 3, 0]);
    let with = |hidden, top_k| {
        load(|options| {
            options.tokens_file = Some(tokens.clone());
            options.routing = Some(routing.clone());
            (options.hidden, options.top_k) = (hidden, top_k);
        })
    };
    let inputs = with(None, None).unwrap();
    assert_eq!((inputs.config.hidden, inputs.config.top_k), (16, 2));
    assert_eq!(inputs.batch(0, 0).weights[..2], [0.5, 0.5]);
    assert!(with(Some(16), Some(2)).is_ok());
    let message = with(Some(32), None).unwrap_err().to_string();
    assert_eq!(message, "--hidden is 32, but the file has 16 columns");
    let message = with(None, Some(8)).unwrap_err().to_string();
    assert_eq!(message, "--top-k is 8, but the file has 2 columns");
}

#[test]
fn tables_that_do_not_belong_together_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let tokens = file(directory.path(), "t.npy", 8, &[1u16; 32]);
    let routing = file(directory.path(), "r.npy", 2, &[0i32, 1, 2, -1, 3, 0]);
    let message = refusal(|options| {
        options.tokens_file = Some(tokens);
        options.routing = Some(routing.clone());
    });
    assert_eq!(
        message,
        "the tokens file has 4 rows, the routing 3; they must be as many"
    );
    let weights = file(
        directory.path(),
        "w.npy",
        2,
        &[0.5f32, 0.5, f32::NAN, 0.0, 1.0, 0.0],
    );
    let message = refusal(|options| {
        options.routing = Some(routing);
        options.weights = Some(weights);
    });
    assert_eq!(
        message,
        "--weights: token 1 has weight NaN; it must be finite"
    );
}

#[test]
fn a_value_beyond_its_limit_is_named_with_the_limit() {
    assert_eq!(
        refusal(|options| options.ranks = 65),
        "--ranks is 65; it must be 1 to 64"
    );
    assert_eq!(
        refusal(|options| options.steps = 0),
        "--steps is 0; it must be at least 1"
    );
    assert_eq!(
        refusal(|options| options.hidden = Some(100)),
        "hidden is 100, which is not a multiple of 8"
    );
    assert_eq!(
        refusal(|options| options.top_k = Some(33)),
        "top-k is 33; it must be 1 to 32"
    );
    assert_eq!(
        refusal(|options| options.tokens = 65_535),
        "max_tokens is 65535; it must be 1 to 65534"
    );
    let missing = refusal(|options| options.tokens_file = Some("/nonexistent.npy".into()));
    assert!(
        missing.starts_with("/nonexistent.npy: No such file"),
        "{missing}"
    );
}

#[test]
fn an_expert_out_of_range_or_chosen_twice_is_named_with_its_token() {
    let directory = tempfile::tempdir().unwrap();
    let message = |ids: &[i32]| {
        let routing = file(directory.path(), "r.npy", 2, ids);
        refusal(|options| options.routing = Some(routing))
    };
    assert_eq!(
        message(&[0, 1, 64, 2]),
        "token 1 chooses expert 64; expert ids are 0 to 63, or -1 for none"
    );
    assert_eq!(message(&[5, 5]), "token 0 chooses expert 5 twice");
}
