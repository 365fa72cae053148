//! Time to read JSON requests: click-prediction requests of 1 and 32 rows, by the server's reader and by serde_json
//! into values.
//!
//! `cargo run --release -p tierlab-protocol --example json_readers`

use std::hint::black_box;
use std::time::{Duration, Instant};
use tierlab_protocol::infer::{Data, InferRequest, Tensor};
use tierlab_protocol::tensor::DataType;

/// Rounds of each reader, alternating; the median is printed.
const ROUNDS: usize = 41;
/// Minimum time of a round.
const ROUND: Duration = Duration::from_millis(25);

/// Returns a request with 13 floats and 26 integers per row, with as many digits as in the generated feature table.
fn request(rows: usize) -> InferRequest {
    let mut state = 7_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state >> 33
    };
    let dense = (0..rows * 13)
        .flat_map(|_| (next() as f32 / 1e8).to_le_bytes())
        .collect();
    let categorical = (0..rows * 26)
        .flat_map(|_| (next() as i64 % 200_000).to_le_bytes())
        .collect();
    let tensor = |name: &str, dtype, width, data| Tensor {
        name: name.to_owned(),
        dtype,
        shape: vec![rows as i64, width],
        data,
    };
    InferRequest {
        inputs: vec![
            tensor("dense", DataType::Fp32, 13, dense),
            tensor("categorical", DataType::Int64, 26, categorical),
        ],
        ..InferRequest::default()
    }
}

/// Returns the seconds per read, averaged over a round.
fn round(read: impl Fn()) -> f64 {
    let began = Instant::now();
    let mut reads = 0_u32;
    while began.elapsed() < ROUND {
        for _ in 0..16 {
            read();
        }
        reads += 16;
    }
    began.elapsed().as_secs_f64() / f64::from(reads)
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

fn main() {
    println!(
        "{:>4} {:>7} {:>9} {:>9} {:>6}",
        "rows", "bytes", "ours us", "serde us", "ratio"
    );
    for rows in [1, 32] {
        let request = request(rows);
        let text = request.encode_json();
        let body = Data::from(text.clone());
        assert_eq!(InferRequest::decode(&body, None).as_ref(), Ok(&request));
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            times[0].push(round(|| {
                black_box(InferRequest::decode(black_box(&body), None).expect("a valid request"));
            }));
            times[1].push(round(|| {
                black_box(serde_json::from_slice::<serde_json::Value>(black_box(&text)).expect("JSON"));
            }));
        }
        let [ours, serde] = times.map(median);
        println!(
            "{rows:>4} {:>7} {:>9.2} {:>9.2} {:>6.2}",
            text.len(),
            ours * 1e6,
            serde * 1e6,
            serde / ours
        );
    }
}
