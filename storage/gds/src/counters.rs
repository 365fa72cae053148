//! Proof from cuFile's counters that reads went from the device to GPU memory directly. Pure: words in, verdict out.
//!
//! `cuFileGetStatsL3` fills a `CUfileStatsLevel3_t`. It is read as 64-bit words at the offsets of CUDA 13.0 to 13.3,
//! not as that structure, because a later cuFile fills a larger structure, which must fit. The words of such a cuFile
//! do not add up, and the verdict is no.

use cudarc::cufile::sys::{CUfilePerGpuStats_t as PerGpu, CUfileStatsLevel3_t as Level3};
use std::mem::offset_of;

/// Words handed to cuFile: more than three times the size of the known layout.
pub(super) const WORDS: usize = 2048;
const GPUS_AT: usize = words_in(offset_of!(Level3, num_gpus));
const FIRST_GPU_AT: usize = words_in(offset_of!(Level3, per_gpu_stats));
const GPU_WORDS: usize = words_in(size_of::<PerGpu>());
const MOST_GPUS: usize = (words_in(size_of::<Level3>()) - FIRST_GPU_AT) / GPU_WORDS;
const BYTES: usize = words_in(offset_of!(PerGpu, read_bytes));
const TOTAL: usize = words_in(offset_of!(PerGpu, n_total_reads));
const PEER_TO_PEER: usize = words_in(offset_of!(PerGpu, n_p2p_reads));
const NVIDIA_FS: usize = words_in(offset_of!(PerGpu, n_nvfs_reads));
const POSIX: usize = words_in(offset_of!(PerGpu, n_posix_reads));

const _: () = assert!(size_of::<Level3>() * 3 < WORDS * 8);

const fn words_in(bytes: usize) -> usize {
    assert!(bytes.is_multiple_of(8));
    bytes / 8
}

/// Reads counted by cuFile over all GPUs: since its counters were started, or between two snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reads {
    /// Bytes of all.
    pub bytes: u64,
    /// Number of all reads.
    pub total: u64,
    /// From the device over the bus, by the kernel's peer-to-peer.
    pub peer_to_peer: u64,
    /// The same by the nvidia-fs module.
    pub nvidia_fs: u64,
    /// Through the host's memory.
    pub posix: u64,
}

/// Buffer for a snapshot of cuFile's counters.
#[derive(Debug)]
pub struct Counters(Box<[u64; WORDS]>);

impl Default for Counters {
    fn default() -> Self {
        Self(Box::new([0; WORDS]))
    }
}

impl Counters {
    pub(super) fn words(&mut self) -> &mut [u64; WORDS] {
        &mut self.0
    }
}

impl Reads {
    /// Reads the counters; `None` if they are inconsistent.
    pub(crate) fn parse(words: &[u64]) -> Option<Self> {
        let gpus = usize::try_from(*words.get(GPUS_AT)?)
            .ok()
            .filter(|gpus| (1..=MOST_GPUS).contains(gpus))?;
        let mut reads = Self {
            bytes: 0,
            total: 0,
            peer_to_peer: 0,
            nvidia_fs: 0,
            posix: 0,
        };
        for gpu in words.get(FIRST_GPU_AT..)?.chunks_exact(GPU_WORDS).take(gpus) {
            reads.bytes = reads.bytes.checked_add(gpu[BYTES])?;
            reads.total = reads.total.checked_add(gpu[TOTAL])?;
            reads.peer_to_peer = reads.peer_to_peer.checked_add(gpu[PEER_TO_PEER])?;
            reads.nvidia_fs = reads.nvidia_fs.checked_add(gpu[NVIDIA_FS])?;
            reads.posix = reads.posix.checked_add(gpu[POSIX])?;
        }
        Some(reads)
    }

    /// Difference to an earlier snapshot; `None` if a counter decreased.
    #[must_use]
    pub fn since(&self, before: &Self) -> Option<Self> {
        Some(Self {
            bytes: self.bytes.checked_sub(before.bytes)?,
            total: self.total.checked_sub(before.total)?,
            peer_to_peer: self.peer_to_peer.checked_sub(before.peer_to_peer)?,
            nvidia_fs: self.nvidia_fs.checked_sub(before.nvidia_fs)?,
            posix: self.posix.checked_sub(before.posix)?,
        })
    }

    /// True if these counts prove that exactly these `bytes` took only the direct path. Anything else, such as a
    /// concurrent read by another program, proves nothing.
    #[must_use]
    pub fn prove_direct(&self, bytes: u64) -> bool {
        let direct = self.peer_to_peer.checked_add(self.nvidia_fs);
        self.total > 0 && self.bytes == bytes && direct == Some(self.total) && self.posix == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counters of two GPUs; the second has read.
    fn words(bytes: u64, total: u64, peer_to_peer: u64, nvidia_fs: u64, posix: u64) -> Vec<u64> {
        let mut words = vec![0; WORDS];
        words[GPUS_AT] = 2;
        let second = GPUS_AT + 1 + GPU_WORDS;
        words[second + 2] = bytes;
        words[second + 6..second + 10].copy_from_slice(&[total, peer_to_peer, nvidia_fs, posix]);
        words
    }

    #[test]
    fn only_counters_that_add_up_prove_anything() {
        let before = Reads::parse(&words(1000, 5, 2, 2, 1)).unwrap();
        let proven = |after: &[u64]| {
            let since = Reads::parse(after).unwrap().since(&before);
            since.is_some_and(|since| since.prove_direct(4096))
        };
        assert!(proven(&words(5096, 6, 3, 2, 1)), "by peer to peer");
        assert!(proven(&words(5096, 6, 2, 3, 1)), "by nvidia-fs");
        assert!(!proven(&words(5096, 6, 2, 2, 2)), "through POSIX");
        assert!(!proven(&words(5096, 7, 3, 2, 2)), "partly through POSIX");
        assert!(!proven(&words(5096, 6, 2, 2, 1)), "a read of no known way");
        assert!(!proven(&words(9192, 7, 4, 2, 1)), "somebody else read too");
        assert!(!proven(&words(1000, 5, 2, 2, 1)), "nothing was counted");
        assert!(!proven(&words(0, 0, 0, 0, 0)), "the counters were reset");
    }

    #[test]
    fn another_layout_is_not_read() {
        assert_eq!(Reads::parse(&[0; WORDS]), None);
        assert_eq!(Reads::parse(&[u64::MAX; WORDS]), None);
        assert_eq!(Reads::parse(&[1; 100]), None);
    }
}
