//! Statistics of a step's requests: number of different ones, bytes, shapes and rows.
//!
//! In: facts of each different request. Out: the record in the result.

use super::draw::unsigned;
use super::resolved::{Inputs, Source};
use super::rule::Order;
use crate::payload::Body;
use std::collections::BTreeMap;
use tierlab_analysis::record::{SentInput, SentRequests, ShapeShare, Spread, ValueCheck};
use tierlab_protocol::infer::Tensor;
use tierlab_protocol::metadata::ENTITY_ID;
use tierlab_protocol::tensor::DataType;

/// Maximum shapes listed per input in a result.
const LISTED_SHAPES: usize = 16;

/// Facts of one different request.
pub(super) struct Fact {
    rows: u32,
    tensors: Vec<(String, DataType, Vec<u64>)>,
}

impl Fact {
    pub(super) fn of(rows: u32, tensors: &[Tensor]) -> Self {
        let described = |tensor: &Tensor| (tensor.name.clone(), tensor.dtype, unsigned(&tensor.shape));
        Self {
            rows,
            tensors: tensors.iter().map(described).collect(),
        }
    }
}

impl Inputs {
    pub(super) fn sent(&self, bodies: &[Body], facts: &[Fact]) -> SentRequests {
        let rows: f64 = facts.iter().map(|fact| f64::from(fact.rows)).sum();
        let mean_rows = rows / facts.len().max(1) as f64;
        SentRequests {
            distinct: facts.len() as u64,
            order: self.order.to_string(),
            bytes: bytes(bodies),
            inferences_per_request: self.rows_per_request.map_or(mean_rows, f64::from),
            mean_rows: Some(mean_rows),
            rows_by: self.rows_by.to_string(),
            inputs: self.sent_inputs(facts),
            checked: self.check.as_ref().map(|check| ValueCheck {
                share: check.share,
                tolerance: check.tolerance,
                requests: bodies.iter().filter(|body| has_values(body)).count() as u64,
            }),
        }
    }

    fn sent_inputs(&self, facts: &[Fact]) -> Vec<SentInput> {
        let mut by_name: BTreeMap<&str, (DataType, BTreeMap<&[u64], u64>)> = BTreeMap::new();
        for (name, dtype, shape) in facts.iter().flat_map(|fact| &fact.tensors) {
            let (_, shapes) = by_name.entry(name).or_insert_with(|| (*dtype, BTreeMap::new()));
            *shapes.entry(shape).or_default() += 1;
        }
        let values = |name: &str| {
            let wanted = self.wanted.iter().find(|want| want.spec.name == name);
            match wanted.map(|want| &want.source) {
                Some(Source::Generated {
                    values, by_plan: true, ..
                }) => values.to_string(),
                Some(Source::Generated { values, .. }) => format!("{values}, by default"),
                Some(Source::Recorded) => "recorded".to_owned(),
                None => "keys of the feature table".to_owned(),
            }
        };
        let sent = by_name.into_iter().map(|(name, (dtype, shapes))| {
            let all: u64 = shapes.values().sum();
            let elements = shapes.iter().flat_map(|(shape, count)| {
                let elements = shape.iter().product::<u64>();
                std::iter::repeat_n(elements, usize::try_from(*count).unwrap_or(0))
            });
            let elements = Spread::of(elements.collect());
            let mut listed: Vec<(&[u64], u64)> = shapes.iter().map(|(shape, count)| (*shape, *count)).collect();
            listed.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            SentInput {
                name: name.to_owned(),
                datatype: dtype.to_string(),
                values: values(name),
                distinct_shapes: listed.len() as u64,
                shapes: listed
                    .iter()
                    .take(LISTED_SHAPES)
                    .map(|(shape, count)| ShapeShare {
                        shape: shape.to_vec(),
                        share: *count as f64 / all.max(1) as f64,
                    })
                    .collect(),
                elements,
            }
        });
        sent.collect()
    }
}

fn bytes(bodies: &[Body]) -> Spread {
    Spread::of(bodies.iter().map(|body| body.bytes.len() as u64).collect())
}

fn has_values(body: &Body) -> bool {
    body.wanted.as_ref().is_some_and(|wanted| wanted.has_values())
}

/// Statistics of requests that hold entity ids only.
pub fn joined_requests(bodies: &[Body], rows: u32, keys: &str) -> SentRequests {
    let input = SentInput {
        name: ENTITY_ID.into(),
        datatype: DataType::Int64.to_string(),
        values: format!("keys of the feature table, {keys}"),
        shapes: vec![ShapeShare {
            shape: vec![rows.into()],
            share: 1.0,
        }],
        distinct_shapes: 1,
        elements: Spread::of(vec![rows.into()]),
    };
    SentRequests {
        rows_by: format!("the first dimension of `{ENTITY_ID}`, whose rows the server joins"),
        inputs: vec![input],
        ..other_requests(bodies, rows)
    }
}

/// Statistics of requests of another protocol, whose bodies are opaque.
pub fn other_requests(bodies: &[Body], inferences: u32) -> SentRequests {
    SentRequests {
        distinct: bodies.len() as u64,
        order: Order::Sequential.to_string(),
        bytes: bytes(bodies),
        inferences_per_request: inferences.into(),
        rows_by: "as the plan's own bodies have them".into(),
        ..SentRequests::default()
    }
}
