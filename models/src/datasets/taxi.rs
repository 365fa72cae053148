//! Yellow taxi trips as Parquet. In: rows, a seed. Out: a file with the columns and types of the trip records of 2024, as the
//! Commission's data dictionary ("Yellow Taxi Trip Records") describes them; trips that a vendor could not transmit lack five values.

use super::draw::{Draw, chunks};
use crate::error::ModelsError;
use crate::progress::Progress;
use crate::staged::StagedFile;
use crate::stop::Stop;
use arrow_array::{
    ArrayRef, Float64Array, Int32Array, Int64Array, LargeStringArray, RecordBatch, TimestampMicrosecondArray,
};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a row group while it is written.
const GROUP_BYTES: usize = 64 << 20;
/// Bytes of a row as Arrow: eight a column, about.
const ROW_BYTES: u64 = 19 * 8;
/// The first of January 2024, 00:00, in microseconds since 1970; trips have no time zone.
const BEGIN_US: i64 = 1_704_067_200_000_000;
/// Trips begin within 31 days of it.
const MONTH_S: u32 = 31 * 86_400;
/// Trips of which a vendor knows the meter only.
const UNTRANSMITTED: f64 = 0.05;
/// Zones of the city.
const ZONES: u32 = 265;

/// One trip.
struct Trip {
    vendor: i32,
    pickup_us: i64,
    dropoff_us: i64,
    /// What is not known of trips that were not transmitted: passengers, rate code, flag, congestion and airport fees.
    known: Option<Known>,
    miles: f64,
    zones: [i32; 2],
    payment: i64,
    /// Fare, extra, tax, tip, tolls, improvement surcharge, and all together, in dollars.
    dollars: [f64; 7],
}

struct Known {
    passengers: i64,
    rate_code: i64,
    flag: &'static str,
    fees: [f64; 2],
}

impl Trip {
    fn of(seed: u64, row: u64) -> Self {
        let mut draw = Draw::of("taxi", seed, row);
        let pickup_us = BEGIN_US + i64::from(draw.below(MONTH_S)) * 1_000_000;
        let miles = cents(0.3 + draw.exponential(3.0));
        // Eleven miles an hour, and a while to stop.
        let seconds = (60.0 + miles / 11.0 * 3600.0 * (0.6 + 0.8 * draw.unit())) as i64;
        let is_card = draw.chance(0.8);
        let known = (!draw.chance(UNTRANSMITTED)).then(|| Known {
            passengers: i64::from(1 + draw.below(6).saturating_sub(draw.below(6))),
            rate_code: if draw.chance(0.04) { 2 } else { 1 },
            flag: if draw.chance(0.005) { "Y" } else { "N" },
            fees: [2.5, if draw.chance(0.08) { 1.75 } else { 0.0 }],
        });
        let fare = cents(3.0 + 3.5 * miles);
        let tip = if is_card { cents(fare * 0.3 * draw.unit()) } else { 0.0 };
        let tolls = if draw.chance(0.07) { 6.94 } else { 0.0 };
        let parts = [fare, f64::from(draw.below(3)), 0.5, tip, tolls, 1.0];
        let fees = known.as_ref().map_or(0.0, |known| known.fees[0] + known.fees[1]);
        let mut dollars = [0.0; 7];
        dollars[..6].copy_from_slice(&parts);
        dollars[6] = cents(parts.iter().sum::<f64>() + fees);
        Self {
            vendor: if draw.chance(0.75) { 2 } else { 1 },
            pickup_us,
            dropoff_us: pickup_us + seconds * 1_000_000,
            miles,
            zones: [draw.below(ZONES) as i32 + 1, draw.below(ZONES) as i32 + 1],
            payment: match &known {
                None => 0,
                Some(_) if is_card => 1,
                Some(_) => 2,
            },
            known,
            dollars,
        }
    }
}

fn cents(dollars: f64) -> f64 {
    (dollars * 100.0).round() / 100.0
}

pub(super) fn write(staged: &StagedFile, rows: u64, seed: u64, stop: &Stop) -> Result<(), ModelsError> {
    let unwritten = |e: &dyn std::fmt::Display| {
        ModelsError::bad(&staged.partial().display(), &format!("it cannot be written: {e}"))
    };
    let out = staged.file().try_clone();
    let out = out.map_err(ModelsError::io("write", staged.partial()))?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .build();
    let none = batch(seed, 0..0).map_err(|e| unwritten(&e))?;
    let mut writer = ArrowWriter::try_new(out, none.schema(), Some(properties)).map_err(|e| unwritten(&e))?;
    let label = format!("writing {} (before compression)", staged.partial().display());
    let mut progress = Progress::bytes(&label, rows * ROW_BYTES);
    for chunk in chunks(rows) {
        stop.check()?;
        let count = chunk.end - chunk.start;
        let batch = batch(seed, chunk).map_err(|e| unwritten(&e))?;
        writer.write(&batch).map_err(|e| unwritten(&e))?;
        if writer.in_progress_size() >= GROUP_BYTES {
            writer.flush().map_err(|e| unwritten(&e))?;
        }
        progress.advance(count * ROW_BYTES);
    }
    writer.close().map(drop).map_err(|e| unwritten(&e))
}

/// The columns, in the Commission's order and by its names.
fn batch(seed: u64, rows: Range<u64>) -> Result<RecordBatch, arrow_schema::ArrowError> {
    let trips: Vec<Trip> = rows.map(|row| Trip::of(seed, row)).collect();
    let small = |of: fn(&Trip) -> i32| Arc::new(Int32Array::from_iter_values(trips.iter().map(of))) as ArrayRef;
    let time =
        |of: fn(&Trip) -> i64| Arc::new(TimestampMicrosecondArray::from_iter_values(trips.iter().map(of))) as ArrayRef;
    let known = |of: fn(&Known) -> i64| {
        let values = trips.iter().map(|trip| trip.known.as_ref().map(of));
        Arc::new(values.collect::<Int64Array>()) as ArrayRef
    };
    let fee = |at: usize| {
        let values = trips.iter().map(|trip| Some(trip.known.as_ref()?.fees[at]));
        Arc::new(values.collect::<Float64Array>()) as ArrayRef
    };
    let dollars = |at: usize| {
        let values = trips.iter().map(|trip| trip.dollars[at]);
        Arc::new(Float64Array::from_iter_values(values)) as ArrayRef
    };
    let flags = trips.iter().map(|trip| Some(trip.known.as_ref()?.flag));
    let miles = trips.iter().map(|trip| trip.miles);
    RecordBatch::try_from_iter_with_nullable(
        [
            ("VendorID", small(|trip| trip.vendor)),
            ("tpep_pickup_datetime", time(|trip| trip.pickup_us)),
            ("tpep_dropoff_datetime", time(|trip| trip.dropoff_us)),
            ("passenger_count", known(|known| known.passengers)),
            (
                "trip_distance",
                Arc::new(Float64Array::from_iter_values(miles)) as ArrayRef,
            ),
            ("RatecodeID", known(|known| known.rate_code)),
            (
                "store_and_fwd_flag",
                Arc::new(flags.collect::<LargeStringArray>()) as ArrayRef,
            ),
            ("PULocationID", small(|trip| trip.zones[0])),
            ("DOLocationID", small(|trip| trip.zones[1])),
            (
                "payment_type",
                Arc::new(Int64Array::from_iter_values(trips.iter().map(|trip| trip.payment))) as ArrayRef,
            ),
            ("fare_amount", dollars(0)),
            ("extra", dollars(1)),
            ("mta_tax", dollars(2)),
            ("tip_amount", dollars(3)),
            ("tolls_amount", dollars(4)),
            ("improvement_surcharge", dollars(5)),
            ("total_amount", dollars(6)),
            ("congestion_surcharge", fee(0)),
            ("Airport_fee", fee(1)),
        ]
        .map(|(name, column)| (name, column, true)),
    )
}
