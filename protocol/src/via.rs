//! Path of a read's bytes. Part of every result, so that a figure never claims a path that was not used.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

/// The path that bytes took from a tier to the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[derive(Display, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case", parse_err_ty = UnknownVia, parse_err_fn = UnknownVia::of)]
pub enum Via {
    /// Already in this process: the memory tier, or a cache hit.
    Memory,
    /// A buffered read: the kernel's page cache may have served it.
    PageCache,
    /// `O_DIRECT` into the reader's own aligned buffer.
    Direct,
    /// Buffered read into a pinned host buffer, copied to device memory during the next read.
    Bounce,
    /// `O_DIRECT` into a pinned host buffer, copied to device memory in the same way.
    BounceDirect,
    /// A buffered read into ordinary host memory, then copied to device memory.
    Pageable,
    /// cuFile, served by POSIX reads (compatibility mode).
    CufilePosix,
    /// GPUDirect Storage, confirmed by the driver's counters.
    Gds,
    /// HTTP range or whole-object GET.
    Http,
    /// NFS READ from user space.
    Nfs,
    /// Arrow Flight DoGet.
    Flight,
    /// MGET of a key-value store.
    Redis,
}

impl Via {
    /// Every path, in the order of the enum.
    pub const ALL: [Self; Self::VARIANTS.len()] = *Self::VARIANTS.first_chunk().unwrap();

    /// The name used in headers, metrics and results.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Name that is not a [`Via`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown read path: `{0}`")]
pub struct UnknownVia(pub String);

impl UnknownVia {
    fn of(name: &str) -> Self {
        Self(name.to_owned())
    }
}

/// Set of the paths of one request's or one batch's reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ViaSet(u16);

impl ViaSet {
    /// Returns a set of one path.
    pub const fn of(via: Via) -> Self {
        Self(1 << via as u8)
    }

    /// Adds one path.
    pub fn insert(&mut self, via: Via) {
        self.0 |= 1 << via as u8;
    }

    /// Returns the union of both sets.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True if a path is in the set.
    pub const fn contains(self, via: Via) -> bool {
        self.0 & (1 << via as u8) != 0
    }

    /// True if nothing was read.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The paths, in the order of [`Via::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Via> {
        Via::ALL.into_iter().filter(move |via| self.contains(*via))
    }
}

/// Names joined by `+`, as `memory+http`; the empty set is the empty string.
impl fmt::Display for ViaSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, via) in self.iter().enumerate() {
            if i > 0 {
                f.write_str("+")?;
            }
            f.write_str(via.as_str())?;
        }
        Ok(())
    }
}

impl FromStr for ViaSet {
    type Err = UnknownVia;

    fn from_str(names: &str) -> Result<Self, UnknownVia> {
        let mut set = Self::default();
        for name in names.split('+').filter(|name| !name.is_empty()) {
            set.insert(name.parse()?);
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back() {
        for via in Via::ALL {
            assert_eq!(via.as_str().parse::<Via>().unwrap(), via);
        }
        assert!("gsd".parse::<Via>().is_err());
    }

    #[test]
    fn sets_read_back() {
        let mut set = ViaSet::of(Via::Http);
        set.insert(Via::Memory);
        assert_eq!(set.to_string(), "memory+http");
        assert_eq!(set.to_string().parse::<ViaSet>().unwrap(), set);
        assert_eq!("".parse::<ViaSet>().unwrap(), ViaSet::default());
    }
}
