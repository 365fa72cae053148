//! Inputs for models of all kinds: valid requests, refusals, and the suggested plan lines.

use super::draw::length;
use super::*;
use crate::payload::{Body, Encoding, Form};
use proptest::prelude::*;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::Arc;
use tierlab_protocol::infer::InferRequest;
use tierlab_protocol::tensor::{DataType, TensorSpec};

fn spec(name: &str, dtype: DataType, shape: &[i64]) -> TensorSpec {
    TensorSpec {
        name: name.into(),
        dtype,
        shape: shape.to_vec(),
    }
}

fn resolve(rules: &InputRules, inputs: &[TensorSpec], batched: bool) -> anyhow::Result<Inputs> {
    let outputs = [spec("y", DataType::Fp32, &[-1, 2])];
    Inputs::resolve(
        rules,
        &Declared {
            model: "m",
            inputs,
            outputs: &outputs,
            batched,
        },
    )
}

fn demand(rows: u32, requests: usize) -> Demand<'static> {
    Demand {
        form: Form::Http(Encoding::Binary),
        rows,
        requests,
        seed: 7,
        entities: None,
    }
}

fn decoded(body: &Body) -> InferRequest {
    InferRequest::decode(&body.bytes.clone().into(), body.json_len).unwrap()
}

/// Name, shape and values of an input.
type Rule<'a> = (&'a str, Option<Vec<Dim>>, Option<Values>);

fn rules(tensors: &[Rule<'_>]) -> InputRules {
    let tensors = tensors.iter().map(|(name, shape, values)| {
        let rule = TensorRule {
            shape: shape.clone(),
            values: values.clone(),
        };
        ((*name).to_owned(), rule)
    });
    InputRules {
        tensors: tensors.collect(),
        ..InputRules::default()
    }
}

fn records(count: u64, width: u64) -> Arc<Records> {
    let data: Vec<u8> = (0..count * width)
        .flat_map(|value| (value as f32).to_le_bytes())
        .collect();
    Arc::new(
        Records::new(
            "x.npy".into(),
            DataType::Fp32,
            Shapes::Same(vec![width]),
            count as usize,
            data,
        )
        .unwrap(),
    )
}

#[test]
fn without_rules_only_the_rows_are_free() {
    let none = InputRules::default();
    let plain = resolve(&none, &[spec("x", DataType::Fp32, &[-1, 4])], false).unwrap();
    assert_eq!(plain.rows_by, RowsBy::Assumed);
    let prepared = plain.prepare(&demand(3, 1_000)).unwrap();
    assert_eq!(prepared.sent.distinct, 64);
    assert_eq!(decoded(&prepared.bodies[0]).inputs[0].shape, [3, 4]);
    assert_ne!(prepared.bodies[0], prepared.bodies[1]);
    assert!(prepared.sent.inputs[0].values.contains("by default"));
    assert!((prepared.sent.inferences_per_request - 3.0).abs() < 1e-9);
    for (inputs, batched, line) in [
        (
            vec![spec("x", DataType::Fp32, &[-1, -1])],
            false,
            "shape = [\"rows\", {",
        ),
        (vec![spec("x", DataType::Fp32, &[-1])], false, "[-1]: free dimensions"),
        (vec![spec("t", DataType::Bytes, &[-1, 1])], false, "values = { text"),
        (vec![spec("t", DataType::Bytes, &[1])], false, "values = { text"),
        (
            vec![spec("x", DataType::Fp32, &[-1, 4]), spec("n", DataType::Int64, &[])],
            false,
            "shape = [\"rows\", 4]",
        ),
    ] {
        let refused = resolve(&none, &inputs, batched).unwrap_err().to_string();
        assert!(refused.contains(line), "{refused}");
    }
    // The rows declared by the server suffice for a vector.
    let vector = resolve(&none, &[spec("x", DataType::Int64, &[-1])], true).unwrap();
    assert_eq!(vector.rows_by, RowsBy::Server);
    let fixed = resolve(
        &none,
        &[spec("x", DataType::Fp32, &[2]), spec("s", DataType::Int32, &[])],
        false,
    )
    .unwrap();
    assert_eq!(fixed.rows_by, RowsBy::Unknown);
    let refused = fixed.prepare(&demand(4, 10)).unwrap_err().to_string();
    assert!(refused.contains("takes a batch of 4 rows"), "{refused}");
    assert!((fixed.prepare(&demand(1, 10)).unwrap().sent.inferences_per_request - 1.0).abs() < 1e-9);
}

#[test]
fn every_type_is_made() {
    let inputs: Vec<TensorSpec> = DataType::ALL
        .iter()
        .map(|dtype| spec(dtype.as_str(), *dtype, &[-1, 2]))
        .collect();
    let words = Values::Words { least: 1, most: 3 };
    let rules = rules(&[("BYTES", None, Some(words))]);
    let resolved = resolve(&rules, &inputs, true).unwrap();
    let prepared = resolved.prepare(&demand(2, 5)).unwrap();
    let request = decoded(&prepared.bodies[0]);
    assert_eq!(request.inputs.len(), 14);
    assert!(request.inputs.iter().all(|input| input.shape == [2, 2]));
    let json = resolved.prepare(&Demand {
        form: Form::Http(Encoding::Json),
        ..demand(2, 5)
    });
    let refused = json.unwrap_err().to_string();
    assert!(
        refused.contains("`FP16`") && refused.contains("encoding = \"binary\""),
        "{refused}"
    );
}

#[test]
fn dimensions_follow_each_other_and_stay_in_their_bounds() {
    let inputs = [
        spec("mask", DataType::Int64, &[-1, -1]),
        spec("image", DataType::Fp32, &[-1, 3, -1, -1]),
        spec("ids", DataType::Int64, &[-1, -1]),
    ];
    let same = |input: Option<&str>, axis| Dim::SameAs {
        input: input.map(str::to_owned),
        axis,
    };
    let lengths = Lengths {
        law: Law::Lognormal {
            median: 20.0,
            sigma: 1.0,
        },
        least: 2,
        most: 50,
    };
    let rules = rules(&[
        ("mask", Some(vec![Dim::Rows, same(Some("ids"), 1)]), None),
        (
            "image",
            Some(vec![
                Dim::Rows,
                Dim::Fixed(3),
                Dim::Choices(vec![4, 6, 8]),
                same(None, 2),
            ]),
            None,
        ),
        (
            "ids",
            Some(vec![Dim::Rows, Dim::Draw(lengths)]),
            Some(Values::Integers { least: 5, most: 9 }),
        ),
    ]);
    let resolved = resolve(&rules, &inputs, false).unwrap();
    assert_eq!(resolved.rows_by, RowsBy::Plan);
    let prepared = resolved.prepare(&demand(2, 200)).unwrap();
    assert_eq!(prepared.sent.distinct, 200);
    assert_eq!(
        prepared
            .sent
            .inputs
            .iter()
            .find(|input| input.name == "image")
            .unwrap()
            .distinct_shapes,
        3
    );
    for body in &prepared.bodies {
        let request = decoded(body);
        let shape = |at: usize| &request.inputs[at].shape;
        assert_eq!(shape(0), shape(2));
        assert!((2..=50).contains(&shape(2)[1]) && shape(1)[2] == shape(1)[3]);
        let ids = request.inputs[2].data.whole();
        assert!(ids.chunks_exact(8).all(|id| (5..=9).contains(&id[0])));
    }
    // The same seed, the same requests.
    assert_eq!(prepared.bodies, resolved.prepare(&demand(2, 200)).unwrap().bodies);
}

#[test]
fn what_does_not_fit_the_model_is_refused() {
    let image = [spec("image", DataType::Fp32, &[-1, 3, -1, -1])];
    let shaped = |dims: &[Dim]| rules(&[("image", Some(dims.to_vec()), None)]);
    let one = Dim::Fixed(1);
    for (rules, what) in [
        (
            shaped(std::slice::from_ref(&one)),
            "has 1 dimensions, the model's has 4",
        ),
        (
            shaped(&[one.clone(), Dim::Fixed(4), one.clone(), one.clone()]),
            "`inputs.tensor.image.shape[1]` is 4, the model's is 3",
        ),
        (
            rules(&[("imgae", None, None)]),
            "`inputs.tensor.imgae`: `imgae` is not an input of model",
        ),
        (
            rules(&[(
                "image",
                Some(vec![one.clone(), Dim::Fixed(3), Dim::Fixed(8), Dim::Fixed(8)]),
                Some(Values::Words { least: 1, most: 2 }),
            )]),
            "texts are not valid for FP32",
        ),
    ] {
        let refused = resolve(&rules, &image, false).map(|_| ()).unwrap_err();
        assert!(refused.to_string().contains(what), "{refused} does not say {what}");
    }
    let chain = |axis| Dim::SameAs { input: None, axis };
    for (dims, what) in [
        (
            vec![one.clone(), Dim::Fixed(3), chain(3), chain(0)],
            "refers to another dimension",
        ),
        (
            vec![one.clone(), Dim::Fixed(3), one.clone(), chain(7)],
            "only has dimensions 0 to 3",
        ),
    ] {
        let refused = resolve(&shaped(&dims), &image, false).map(|_| ()).unwrap_err();
        assert!(refused.to_string().contains(what), "{refused} does not say {what}");
    }
    let ints = [spec("n", DataType::Int8, &[-1, 2])];
    let floats = rules(&[("n", None, Some(Values::Uniform { from: 0.0, to: 1.0 }))]);
    let refused = resolve(&floats, &ints, true).unwrap_err().to_string();
    assert!(refused.contains("integers"));
}

#[test]
fn records_of_files_are_rows_or_whole_inputs() {
    let x = [spec("x", DataType::Fp32, &[-1, 4])];
    let from = rules(&[("x", None, Some(Values::File(records(6, 4))))]);
    let resolved = resolve(&from, &x, false).unwrap();
    let prepared = resolved.prepare(&demand(2, 10)).unwrap();
    assert_eq!(prepared.sent.distinct, 3);
    let second = decoded(&prepared.bodies[1]);
    assert_eq!(
        (
            &second.inputs[0].shape[..],
            second.inputs[0].data.whole()[0..4].to_vec()
        ),
        (&[2, 4][..], 8_f32.to_le_bytes().to_vec())
    );
    // Flat rows of the model.
    let deep = [spec("x", DataType::Fp32, &[-1, 2, 2])];
    let flat = resolve(&from, &deep, false).unwrap();
    assert_eq!(
        decoded(&flat.prepare(&demand(2, 3)).unwrap().bodies[0]).inputs[0].shape,
        [2, 2, 2]
    );
    // A state in a single array.
    let state = [spec("h", DataType::Fp32, &[6, 4])];
    let whole = resolve(&rules(&[("h", None, Some(Values::File(records(6, 4))))]), &state, false).unwrap();
    assert_eq!(
        decoded(&whole.prepare(&demand(1, 3)).unwrap().bodies[0]).inputs[0].shape,
        [6, 4]
    );
    // A shape from the plan that records fill.
    let free = [spec("x", DataType::Fp32, &[-1, -1, 2])];
    let dims = vec![Dim::Rows, Dim::Fixed(4), Dim::Fixed(2)];
    let filled = resolve(
        &rules(&[("x", Some(dims), Some(Values::File(records(6, 4))))]),
        &free,
        false,
    )
    .unwrap();
    assert_eq!(
        decoded(&filled.prepare(&demand(1, 3)).unwrap().bodies[1]).inputs[0]
            .data
            .whole()[0..4],
        8_f32.to_le_bytes()
    );
    let mismatched = resolve(&rules(&[("x", None, Some(Values::File(records(6, 3))))]), &x, false).unwrap();
    let refused = mismatched.prepare(&demand(1, 3)).unwrap_err().to_string();
    assert!(refused.contains("the model's is [-1, 4]"));
}

fn recorded(values: &[f32]) -> Arc<Recorded> {
    let tensor = |name: &str, text: String, shape: Option<Vec<u64>>| RecordedTensor {
        name: name.into(),
        shape,
        content: RecordedContent::Json(RawValue::from_string(text).unwrap()),
    };
    let requests = values.iter().enumerate().map(|(step, value)| RecordedRequest {
        place: format!("step {step}"),
        inputs: vec![tensor("x", format!("[{value}, 0]"), Some(vec![2]))],
        expected: vec![tensor("y", format!("[{value}, 1]"), None)],
        whole: None,
    });
    Arc::new(Recorded {
        source: "d.json".into(),
        requests: requests.collect(),
    })
}

fn firsts(bodies: &[Body]) -> Vec<f32> {
    let first = |body: &Body| f32::from_le_bytes(decoded(body).inputs[0].data.whole()[..4].try_into().unwrap());
    bodies.iter().map(first).collect()
}

#[test]
fn recorded_requests_come_in_their_order_in_batches_and_with_what_they_expect() {
    let inputs = [spec("x", DataType::Fp32, &[-1, -1])];
    let with = |order| InputRules {
        order,
        recorded: Some(recorded(&[1.0, 2.0, 3.0, 4.0])),
        check: Some(CheckRule {
            share: 1.0,
            tolerance: 0.0,
            expected: None,
        }),
        ..InputRules::default()
    };
    let sequential = resolve(&with(Order::Sequential), &inputs, true).unwrap();
    let one = sequential.prepare(&demand(1, 10)).unwrap();
    assert_eq!(firsts(&one.bodies), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(one.sent.checked.unwrap().requests, 4);
    assert_eq!(decoded(&one.bodies[0]).inputs[0].shape, [1, 2]);
    let reply = |y: [f32; 2]| {
        let text = format!(
            "{{\"model_name\":\"m\",\"outputs\":[{{\"name\":\"y\",\"datatype\":\"FP32\",\"shape\":[1,2],\"data\":[{},{}]}}]}}",
            y[0], y[1]
        );
        one.bodies[1]
            .wanted
            .as_ref()
            .unwrap()
            .at(5)
            .check_http(&text.into(), None)
            .map(drop)
    };
    assert_eq!(reply([2.0, 1.0]), Ok(()));
    let fault = reply([2.0, 1.5]).unwrap_err().to_string();
    assert!(fault.contains("output `y`, element 1: expected 1, got 1.5"), "{fault}");

    let two = sequential.prepare(&demand(2, 10)).unwrap();
    assert_eq!(firsts(&two.bodies), [1.0, 3.0]);
    assert_eq!(decoded(&two.bodies[0]).inputs[0].shape, [2, 2]);

    let shuffled = resolve(&with(Order::Shuffled), &inputs, true)
        .unwrap()
        .prepare(&demand(1, 40))
        .unwrap();
    let mut order = firsts(&shuffled.bodies);
    assert!(order.len() >= 40 && order != firsts(&one.bodies).repeat(10));
    order.truncate(40);
    order.sort_by(f32::total_cmp);
    assert_eq!(order.iter().filter(|value| **value == 1.0).count(), 10);

    let zipf = resolve(&with(Order::Zipf { exponent: 2.0 }), &inputs, true)
        .unwrap()
        .prepare(&demand(1, 1_000))
        .unwrap();
    let mut counts = BTreeMap::new();
    for value in firsts(&zipf.bodies) {
        *counts.entry(value as u32).or_insert(0) += 1;
    }
    assert!(counts[&1] > 2 * counts[&2] && counts[&2] > counts[&4], "{counts:?}");
}

#[test]
fn whole_requests_are_sent_as_they_stand() {
    let line = r#"{"id":"7","inputs":[{"name":"x","datatype":"FP32","shape":[3,2],"data":[1,2,3,4,5,6]}]}"#;
    let whole = Recorded {
        source: "r.jsonl".into(),
        requests: vec![RecordedRequest {
            place: "line 1".into(),
            whole: Some(line.into()),
            ..RecordedRequest::default()
        }],
    };
    let rules = InputRules {
        recorded: Some(Arc::new(whole)),
        ..InputRules::default()
    };
    let inputs = [spec("x", DataType::Fp32, &[-1, 2])];
    let resolved = resolve(&rules, &inputs, true).unwrap();
    let json = resolved
        .prepare(&Demand {
            form: Form::Http(Encoding::Json),
            ..demand(1, 5)
        })
        .unwrap();
    assert_eq!(json.bodies[0].bytes, line.as_bytes());
    assert!((json.sent.inferences_per_request - 3.0).abs() < 1e-9);
    assert_eq!(
        decoded(&resolved.prepare(&demand(1, 5)).unwrap().bodies[0]).inputs[0].shape,
        [3, 2]
    );
    assert!(resolved.prepare(&demand(4, 5)).is_err());
    let others = [spec("z", DataType::Fp32, &[-1, 2])];
    let refused = resolve(&rules, &others, true).map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("line 1") && refused.contains("`x`"), "{refused}");
}

#[test]
fn bodies_are_bounded() {
    let large = resolve(
        &InputRules::default(),
        &[spec("x", DataType::Fp64, &[-1, 1 << 40])],
        true,
    )
    .unwrap();
    let refused = large.prepare(&demand(1, 5)).unwrap_err().to_string();
    assert!(refused.contains("256 MiB"));
    let image = rules(&[("x", Some(vec![Dim::Rows, Dim::Fixed(4 << 20)]), None)]);
    let resolved = resolve(&image, &[spec("x", DataType::Uint8, &[-1, -1])], true).unwrap();
    let prepared = resolved.prepare(&demand(4, 1_000)).unwrap();
    assert_eq!(prepared.sent.distinct, 8, "128 MiB");
}

proptest! {
    #[test]
    fn lengths_stay_within_their_bounds(
        median in 0.1_f64..1e6,
        sigma in 0.0_f64..5.0,
        least in 0_u64..100,
        more in 0_u64..1_000,
        seed: u64,
    ) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        for law in [Law::Uniform, Law::Lognormal { median, sigma }] {
            let lengths = Lengths { law, least, most: least + more };
            let drawn = length(&lengths, &mut rng).unwrap();
            prop_assert!((least..=least + more).contains(&drawn), "{drawn}");
        }
    }

    /// Half of lognormal lengths are below the median.
    #[test]
    fn the_median_is_the_median(median in 50.0_f64..500.0, seed: u64) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let lengths = Lengths { law: Law::Lognormal { median, sigma: 0.6 }, least: 0, most: 1 << 30 };
        let below = (0..2_000).filter(|_| length(&lengths, &mut rng).unwrap() as f64 <= median).count();
        prop_assert!((850..1_150).contains(&below), "{below}");
    }

    /// Any declared model gives a valid request, or a refusal.
    #[test]
    fn any_model_is_asked_or_refused(
        shapes in prop::collection::vec((prop::collection::vec(prop::sample::select(vec![-1_i64, 0, 1, 2, 3]), 0..4), 0_usize..14), 1..4),
        batched: bool,
        rows in 1_u32..3,
    ) {
        let inputs: Vec<TensorSpec> = shapes
            .iter()
            .enumerate()
            .map(|(index, (shape, dtype))| spec(&format!("x{index}"), DataType::ALL[*dtype], shape))
            .collect();
        if let Ok(resolved) = resolve(&InputRules::default(), &inputs, batched)
            && let Ok(prepared) = resolved.prepare(&demand(rows, 3)) {
                let request = decoded(&prepared.bodies[0]);
                for (tensor, spec) in request.inputs.iter().zip(&inputs) {
                    let fits = |(dim, declared): (&i64, &i64)| *declared < 0 || dim == declared;
                    prop_assert!(tensor.shape.len() == spec.shape.len() && tensor.shape.iter().zip(&spec.shape).all(fits));
                }
            }
    }
}
