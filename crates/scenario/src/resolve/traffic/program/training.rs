//! `training = { … }`.

use sluicegate_config::{
    bound::Bound,
    table::{Item, Table},
    units::{parse_bytes, parse_rate},
};
use sluicegate_program::{
    RANKS_MAX,
    collectives::{Algorithm, Collective},
    training::Training,
};

use super::OPERATIONS_MAX;
use crate::bounds;

const ADVICE: &str = "for example training = { parameters = 70e9, layers = 80, hidden = 8192, \
                      tokens = 4096, data = 8, tensor = 8, pipeline = 4, micro_batches = 8, flops = 400e12 }";

/// Reads the table; gradients are reduced by `algorithm`.
pub fn read(item: &Item<'_>, algorithm: Algorithm) -> Option<Training> {
    let table = item.table()?;
    let needed = |key: &'static str, bound: &Bound<f64>| {
        if table.get(key).is_none() {
            table.require(key, ADVICE);
        }
        table.within(key, bound)
    };
    let count = |key: &'static str, bound: &Bound<i64>| {
        if table.get(key).is_none() {
            table.require(key, ADVICE);
        }
        table.within(key, bound)
    };
    let parameters = needed("parameters", &bounds::PARAMETERS);
    let flops = needed("flops", &bounds::FLOPS);
    let layers = count("layers", &bounds::LAYERS);
    let hidden = count("hidden", &bounds::HIDDEN);
    let tokens = count("tokens", &bounds::TOKENS);
    let degree = |key| table.within(key, &bounds::RANKS).unwrap_or(1) as u32;
    let (data, tensor, pipeline) = (degree("data"), degree("tensor"), degree("pipeline"));
    let micro_batches = table.within("micro_batches", &bounds::LAYERS).unwrap_or(1) as u32;
    let value_bytes = table.parse("value", parse_bytes).unwrap_or(2);
    if let Some(item) = table.get("value").filter(|_| value_bytes == 0) {
        item.complain("must not be 0", "a value has a byte at least");
        return None;
    }
    let tensor_rate_bps = table.parse("tensor_rate", parse_rate).map(|bps| bps as f64);
    let reductions = Collective::AllReduce.algorithms().iter();
    let reductions: Vec<_> = reductions.map(|one| (one.name(), *one)).collect();
    let activations = table.choice("activations", &reductions);
    let scale = table
        .within("scale", &bounds::TRAINING_SCALE)
        .unwrap_or(1.0);
    let training = Training {
        parameters: parameters?,
        layers: layers? as u32,
        hidden: hidden? as u64,
        tokens: tokens? as u64,
        value_bytes,
        data,
        tensor,
        pipeline,
        micro_batches,
        flops: flops?,
        tensor_rate_bps,
        gradients: algorithm,
        activations: activations.unwrap_or(Algorithm::Ring),
        scale,
    };
    let good = is_possible(&table, &training);
    table.close();
    good.then_some(training)
}

fn is_possible(table: &Table<'_>, training: &Training) -> bool {
    if training.ranks() > u64::from(RANKS_MAX) {
        let reason = format!("{} ranks, above {RANKS_MAX}", training.ranks());
        table.item().complain(reason, "choose smaller degrees");
        return false;
    }
    let operations = training.operations_max();
    if operations > OPERATIONS_MAX {
        let reason = format!("up to {operations} operations, above {OPERATIONS_MAX}");
        let advice = "use fewer `micro_batches` or `layers`, or `tensor_rate`";
        table.item().complain(reason, advice);
        return false;
    }
    if training.layers % training.pipeline != 0 {
        let reason = format!(
            "{} layers cannot be shared out evenly among {} stages",
            training.layers, training.pipeline
        );
        table
            .item()
            .complain(reason, "make `layers` a multiple of `pipeline`");
        return false;
    }
    true
}
