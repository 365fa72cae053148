//! Binary encoding of samples: about fifteen bytes for one, fifty with the server's stages. In: samples. Out: bodies of
//! [`Kind::Samples`] frames, and back, checked.
//!
//! A body is samples one after another. Numbers are LEB128. A sample is: due; sent - due and done - sent (zigzag); one
//! byte for the outcome and one bit for timings; the failure's code if it has one; then the timings.

use super::frame::{FrameError, Kind};
use std::time::Duration;
use tierlab_analysis::record::{Failure, Outcome, Sample};
use tierlab_protocol::timing::{Stage, StageTimings};
use tierlab_protocol::via::{Via, ViaSet};

/// Length at which a body is closed; no sample exceeds the rest of a frame.
const CLOSED_AT: usize = 512 << 10;
/// Bit in the byte of the outcome, set if timings follow.
const TIMED: u8 = 0x80;

/// Encodes all samples as bodies of frames.
#[must_use]
pub fn encode(samples: &[Sample]) -> Vec<Vec<u8>> {
    let mut bodies = Vec::new();
    let mut body = Vec::new();
    for sample in samples {
        put_sample(&mut body, sample);
        if body.len() >= CLOSED_AT {
            bodies.push(std::mem::take(&mut body));
        }
    }
    if !body.is_empty() {
        bodies.push(body);
    }
    bodies
}

/// Reads a body's samples into `all`, which may then hold at most `most`.
///
/// # Errors
/// Bytes that are not a sample, or more samples than that.
pub fn decode(body: &[u8], most: usize, all: &mut Vec<Sample>) -> Result<(), FrameError> {
    let bad = |what: &str| FrameError::Bad {
        kind: Kind::Samples,
        what: what.to_owned(),
    };
    let mut rest = body;
    if rest.is_empty() {
        return Err(bad("it is empty"));
    }
    while !rest.is_empty() {
        if all.len() == most {
            return Err(bad("more samples than the share of the schedule has"));
        }
        all.push(take_sample(&mut rest).ok_or_else(|| bad("bytes that are no sample"))?);
    }
    Ok(())
}

fn put_sample(body: &mut Vec<u8>, sample: &Sample) {
    put(body, sample.due_us);
    put(body, zigzag(sample.sent_us, sample.due_us));
    put(body, zigzag(sample.done_us, sample.sent_us));
    let (outcome, code) = outcome_parts(sample.outcome);
    body.push(outcome | if sample.timings.is_some() { TIMED } else { 0 });
    if let Some(code) = code {
        put(body, code.into());
    }
    if let Some(timings) = &sample.timings {
        put_timings(body, timings);
    }
}

fn take_sample(rest: &mut &[u8]) -> Option<Sample> {
    let due_us = take(rest)?;
    let sent_us = unzigzag(take(rest)?, due_us);
    let done_us = unzigzag(take(rest)?, sent_us);
    let byte = take_byte(rest)?;
    let outcome = take_outcome(byte & !TIMED, rest)?;
    let timings = if byte & TIMED == 0 {
        None
    } else {
        Some(take_timings(rest)?)
    };
    Some(Sample {
        due_us,
        sent_us,
        done_us,
        outcome,
        timings,
    })
}

/// Returns the number of an outcome, and its code.
const fn outcome_parts(outcome: Outcome) -> (u8, Option<u16>) {
    match outcome {
        Outcome::Ok => (0, None),
        Outcome::Failed(failure) => match failure {
            Failure::Status(code) => (1, Some(code)),
            Failure::Rpc(code) => (2, Some(code)),
            Failure::Timeout => (3, None),
            Failure::Connect => (4, None),
            Failure::Broken => (5, None),
            Failure::WrongReply => (6, None),
            Failure::WrongValue => (7, None),
            Failure::TooLarge => (8, None),
            Failure::DrainLimit => (9, None),
        },
    }
}

fn take_outcome(number: u8, rest: &mut &[u8]) -> Option<Outcome> {
    let mut code = || u16::try_from(take(rest)?).ok();
    Some(Outcome::Failed(match number {
        0 => return Some(Outcome::Ok),
        1 => Failure::Status(code()?),
        2 => Failure::Rpc(code()?),
        3 => Failure::Timeout,
        4 => Failure::Connect,
        5 => Failure::Broken,
        6 => Failure::WrongReply,
        7 => Failure::WrongValue,
        8 => Failure::TooLarge,
        9 => Failure::DrainLimit,
        _ => return None,
    }))
}

fn put_timings(body: &mut Vec<u8>, timings: &StageTimings) {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    for stage in Stage::ALL {
        put(body, micros(timings.get(stage)));
    }
    let split = timings.tier_split;
    for time in [split.queue, split.device, split.copy] {
        put(body, micros(time));
    }
    let counts = [
        timings.tier_requests,
        timings.cache_hits,
        timings.cache_misses,
        timings.batch_rows,
    ];
    for count in counts {
        put(body, count.into());
    }
    let via = (0..).zip(Via::ALL).filter(|(_, via)| timings.via.contains(*via));
    put(body, via.map(|(bit, _)| 1_u64 << bit).sum::<u64>());
}

fn take_timings(rest: &mut &[u8]) -> Option<StageTimings> {
    let mut timings = StageTimings::default();
    for stage in Stage::ALL {
        timings.add(stage, take_time(rest)?);
    }
    let split = &mut timings.tier_split;
    for time in [&mut split.queue, &mut split.device, &mut split.copy] {
        *time = take_time(rest)?;
    }
    let counts = [
        &mut timings.tier_requests,
        &mut timings.cache_hits,
        &mut timings.cache_misses,
        &mut timings.batch_rows,
    ];
    for count in counts {
        *count = u32::try_from(take(rest)?).ok()?;
    }
    let bits = take(rest)?;
    if bits >> Via::ALL.len() != 0 {
        return None;
    }
    let mut via = ViaSet::default();
    for (_, path) in (0..).zip(Via::ALL).filter(|(bit, _)| (bits >> bit) & 1 == 1) {
        via.insert(path);
    }
    timings.via = via;
    Some(timings)
}

/// Reads a stage's time. The sum of all fits a duration: a `u64` of microseconds is far below its maximum.
fn take_time(rest: &mut &[u8]) -> Option<Duration> {
    take(rest).map(Duration::from_micros)
}

fn take_byte(rest: &mut &[u8]) -> Option<u8> {
    let (first, more) = rest.split_first()?;
    *rest = more;
    Some(*first)
}

fn put(body: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        body.push(number as u8 | 0x80);
        number >>= 7;
    }
    body.push(number as u8);
}

fn take(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = take_byte(rest)?;
        let bits = u64::from(byte & 0x7f);
        // The tenth byte has one bit left.
        if bits << shift >> shift != bits {
            return None;
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Encodes `value - from`, so that small differences of either sign are short.
const fn zigzag(value: u64, from: u64) -> u64 {
    let difference = value.wrapping_sub(from) as i64;
    ((difference << 1) ^ (difference >> 63)) as u64
}

const fn unzigzag(coded: u64, from: u64) -> u64 {
    let difference = (coded >> 1) as i64 ^ -((coded & 1) as i64);
    from.wrapping_add_signed(difference)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn timings() -> impl Strategy<Value = StageTimings> {
        (
            prop::array::uniform8(0_u64..1 << 40),
            any::<[u32; 4]>(),
            0_usize..11,
            0_u64..1 << 30,
        )
            .prop_map(|(stages, counts, via, split)| {
                let mut timings = StageTimings::default();
                for (stage, us) in Stage::ALL.into_iter().zip(stages) {
                    timings.add(stage, Duration::from_micros(us));
                }
                timings.tier_split.queue = Duration::from_micros(split);
                timings.tier_split.device = Duration::from_micros(split / 2);
                timings.tier_split.copy = Duration::from_micros(split / 3);
                [
                    timings.tier_requests,
                    timings.cache_hits,
                    timings.cache_misses,
                    timings.batch_rows,
                ] = counts;
                timings.via.insert(Via::ALL[via]);
                timings.via.insert(Via::ALL[0]);
                timings
            })
    }

    fn sample() -> impl Strategy<Value = Sample> {
        let times = (any::<u64>(), any::<u64>(), any::<u64>());
        (times, 0_u8..10, any::<u16>(), prop::option::of(timings())).prop_map(
            |((due_us, sent_us, done_us), number, code, timings)| {
                let mut bytes = Vec::new();
                put(&mut bytes, code.into());
                Sample {
                    due_us,
                    sent_us,
                    done_us,
                    outcome: take_outcome(number, &mut &bytes[..]).unwrap(),
                    timings,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn samples_come_over_as_they_are(samples in prop::collection::vec(sample(), 0..50)) {
            let mut found = Vec::new();
            for body in encode(&samples) {
                decode(&body, samples.len(), &mut found).unwrap();
            }
            prop_assert_eq!(found, samples);
        }

        #[test]
        fn any_bytes_are_samples_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), most in 0_usize..9) {
            let mut found = Vec::new();
            let read = decode(&bytes, most, &mut found);
            prop_assert!(found.len() <= most);
            prop_assert!(read.is_err() || !found.is_empty());
        }

        #[test]
        fn what_is_cut_off_is_refused(sample in sample(), cut in 1_usize..8) {
            let body = encode(&[sample]).swap_remove(0);
            let mut found = Vec::new();
            prop_assert!(decode(&body[..body.len() - cut.min(body.len())], 1, &mut found).is_err());
        }
    }

    #[test]
    fn many_samples_fill_several_frames_and_none_too_many() {
        let one = Sample {
            due_us: 1_000_000,
            sent_us: 1_000_040,
            done_us: 1_002_000,
            outcome: Outcome::Ok,
            timings: None,
        };
        let bodies = encode(&vec![one; 200_000]);
        assert!(bodies.len() > 1 && bodies.iter().all(|body| body.len() <= Kind::Samples.most_bytes()));
        let mut found = Vec::new();
        let refused = bodies
            .iter()
            .try_for_each(|body| decode(body, 199_999, &mut found))
            .unwrap_err();
        assert!(refused.to_string().contains("more samples than"), "{refused}");
    }
}
