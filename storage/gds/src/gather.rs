//! Gathering of a column from rows in device memory, by copies inside the device. In: positions of the rows, and the
//! bytes of each row that belong to the column. Out: the column of all rows, contiguous, in the order of the rows.

use super::error::DeviceError;
use super::memory::Stream;
use super::pool::DeviceBytes;
use cudarc::driver::sys::{CUDA_MEMCPY2D, CUmemorytype};
use std::ops::Range;

/// Rows at equal distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    first: usize,
    rows: usize,
    pitch: usize,
}

/// Starts to copy a column of `rows` of `from` into `into`, starting at `at`. Rows at equal distances are one copy.
///
/// # Errors
/// A row too short for the column, a tensor too short for the rows; an error of the driver.
///
/// # Panics
/// Never: positions are checked first.
pub fn gather(
    from: &DeviceBytes,
    rows: &[Range<usize>],
    column: Column,
    into: &mut DeviceBytes,
    at: usize,
    stream: &Stream,
) -> Result<(), DeviceError> {
    into.check(at, column.len.saturating_mul(rows.len()))?;
    let mut starts = Vec::with_capacity(rows.len());
    for row in rows {
        let start = row.start.saturating_add(column.offset);
        from.check(start, column.len)?;
        starts.push(start);
    }
    if column.len == 0 {
        return Ok(());
    }
    let gpu = into.gpu();
    gpu.make_current()?;
    let driver = &gpu.driver;
    let mut to = into.address() + at as u64;
    for run in runs(&starts, column.len) {
        let begin = from.address() + run.first as u64;
        let copied = if run.rows == 1 {
            // SAFETY: both stretches lie inside their memory, as checked above.
            unsafe { (driver.inside_async)(to, begin, column.len, stream.at) }
        } else {
            let copy = CUDA_MEMCPY2D {
                srcXInBytes: 0,
                srcY: 0,
                srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
                srcHost: std::ptr::null(),
                srcDevice: begin,
                srcArray: std::ptr::null_mut(),
                srcPitch: run.pitch,
                dstXInBytes: 0,
                dstY: 0,
                dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
                dstHost: std::ptr::null_mut(),
                dstDevice: to,
                dstArray: std::ptr::null_mut(),
                dstPitch: column.len,
                WidthInBytes: column.len,
                Height: run.rows,
            };
            // SAFETY: as above for each row; the structure is read during the call only.
            unsafe { (driver.inside_2d_async)(&raw const copy, stream.at) }
        };
        driver.check("a copy inside the device", copied)?;
        to += (run.rows * column.len) as u64;
    }
    Ok(())
}

/// Largest distance of rows in one copy; the driver's limit has been larger on every device since 2010.
const LARGEST_PITCH: usize = 1 << 20;

/// Splits positions into runs of equal distances, each no shorter than `width`.
fn runs(starts: &[usize], width: usize) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for &start in starts {
        if let Some(run) = runs.last_mut() {
            let last = run.first + (run.rows - 1) * run.pitch;
            let pitch = start.wrapping_sub(last);
            let goes_on = if run.rows == 1 {
                (width..=LARGEST_PITCH).contains(&pitch)
            } else {
                pitch == run.pitch
            };
            if start > last && goes_on {
                run.pitch = pitch;
                run.rows += 1;
                continue;
            }
        }
        runs.push(Run {
            first: start,
            rows: 1,
            pitch: width,
        });
    }
    runs
}

/// Bytes of a row that belong to one column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Offset in the row, in bytes.
    pub offset: usize,
    /// Length in bytes.
    pub len: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn equal_distances_are_one_run() {
        let run = |first, rows, pitch| Run { first, rows, pitch };
        assert_eq!(runs(&[0, 512, 1024, 4096], 64), [run(0, 3, 512), run(4096, 1, 64)]);
        assert_eq!(runs(&[512, 0], 64), [run(512, 1, 64), run(0, 1, 64)]);
        assert_eq!(runs(&[7, 7], 64), [run(7, 1, 64), run(7, 1, 64)]);
        assert_eq!(runs(&[], 64), []);
    }

    proptest! {
        #[test]
        fn runs_are_the_places_again(starts in prop::collection::vec(0usize..100_000, 0..50), width in 1usize..600) {
            let again: Vec<usize> = runs(&starts, width)
                .iter()
                .flat_map(|run| (0..run.rows).map(|row| run.first + row * run.pitch).collect::<Vec<_>>())
                .collect();
            prop_assert_eq!(again, starts.clone());
            prop_assert!(runs(&starts, width).iter().all(|run| run.pitch >= width));
        }
    }
}
