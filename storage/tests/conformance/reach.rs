//! Cases that change the storage behind the tier: links, permissions, damaged copies. In: a [`Reach`]. Out: unexpected
//! results.

use super::running::{Bench, expect_kind};
use anyhow::{Result, ensure};
use bytes::Bytes;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tierlab_storage::content::content;
use tierlab_storage::{Body, ErrorKind, Object};

/// Access to the storage behind a tier, past the tier (default: none). Cases that need it are skipped without it, as
/// the table of this suite says.
#[derive(Clone, Default)]
pub(crate) struct Reach {
    folder: Option<PathBuf>,
    permissions: bool,
    damage: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl Reach {
    /// Access to the local folder in which objects are stored under their own paths.
    pub(crate) fn folder(folder: &Path) -> Self {
        Self {
            folder: Some(folder.to_owned()),
            ..Self::default()
        }
    }

    /// Declares that file permissions apply to this process, which they do not for root.
    #[must_use]
    pub(crate) fn with_permissions(self) -> Self {
        Self {
            permissions: true,
            ..self
        }
    }

    /// Action that damages every copy that the tier keeps with checksums.
    #[must_use]
    pub(crate) fn with_damage(self, damage: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            damage: Some(Arc::new(damage)),
            ..self
        }
    }

    /// The folder, if the case `links` can be run.
    pub(super) fn links(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// The folder, if the case `denied` can be run.
    pub(super) fn permissions(&self) -> Option<&Path> {
        self.folder.as_deref().filter(|_| self.permissions)
    }

    /// Action that damages copies, for the case `damaged`.
    pub(super) fn damage(&self) -> Option<&(dyn Fn() + Send + Sync)> {
        self.damage.as_deref()
    }
}

impl Bench<'_> {
    /// Links to a file and a folder outside, absolute and relative.
    pub(super) async fn links(&self, root: &Path) -> Result<()> {
        const SECRET: &str = "not yours";
        self.put("plain", 1, 100).await?;
        let outside = self.suite.scratch.join("outside");
        fs::create_dir_all(&outside)?;
        fs::write(outside.join("secret"), SECRET)?;
        let within = root.join(self.folder.as_str());
        let up = "../".repeat(within.components().count()) + outside.to_str().unwrap_or_default();
        for (name, target) in [
            ("file", outside.join("secret")),
            ("folder", outside.clone()),
            ("up", PathBuf::from(up)),
        ] {
            symlink(target, within.join(name))?;
        }
        let refused = [ErrorKind::Denied, ErrorKind::NotFound, ErrorKind::Invalid];
        for name in ["file", "folder/secret", "up/secret"] {
            let path = self.path(name)?;
            expect_kind(&format!("stat of {path}"), self.tier.stat(&path).await, &refused)?;
            // A caller that knows the stored object would ask for this version.
            let fabricated = Object {
                path,
                size: SECRET.len() as u64,
                version: "1".to_owned(),
            };
            let read = self.read(&fabricated, 0..1).await;
            ensure!(read.is_err(), "{} was read", fabricated.path);
        }
        for name in ["folder/new", "up/new"] {
            let put = self.tier.put(&self.path(name)?, Body::Bytes(Bytes::new())).await;
            ensure!(put.is_err(), "{name} was written");
        }
        let left: Vec<_> = fs::read_dir(&outside)?.collect();
        ensure!(left.len() == 1, "outside there is {left:?}");
        let listed = self.names_below(&self.folder).await?;
        ensure!(listed == ["plain"], "listed {listed:?}");
        Ok(())
    }

    /// An object that may not be read, and then may.
    pub(super) async fn denied(&self, root: &Path) -> Result<()> {
        let size = 10_000;
        let object = self.put("closed", 2, size).await?;
        self.put("open", 3, size).await?;
        let file = root.join(object.path.as_str());
        let allow = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode));
        allow(0)?;
        ensure!(
            fs::File::open(&file).is_err(),
            "this process may read what nobody may: permissions do not hold for it"
        );
        // Changing the permissions may have made another version of it.
        let now = match self.tier.stat(&object.path).await {
            Ok(now) => now,
            Err(e) => {
                expect_kind("stat of what may not be read", Err::<(), _>(e), &[ErrorKind::Denied])?;
                object
            }
        };
        let ranges = [0..100, size - 1..size];
        let read = self.tier.read_many(&now, &ranges).await;
        expect_kind(
            "read of what may not be read",
            read,
            &[ErrorKind::Denied, ErrorKind::Changed],
        )?;
        allow(0o644)?;
        let now = self.tier.stat(&now.path).await?;
        self.expect(&now, 2, 0..size).await
    }

    /// Copies that fail their checksum are read from the tier behind, and no caller sees a wrong byte.
    pub(super) async fn damaged(&self, damage: &(dyn Fn() + Send + Sync)) -> Result<()> {
        let size = 300_007;
        let object = self.put("copied", 4, size).await?;
        for round in 0..3 {
            self.expect(&object, 4, 0..size).await?;
            damage();
            for range in [0..size, 0..1, 70_000..140_000, size - 1..size] {
                let read = self.read(&object, range.clone()).await?;
                ensure!(
                    read.bytes == content(4, range.clone()),
                    "a damaged copy of {range:?} was returned in round {round}"
                );
            }
        }
        Ok(())
    }
}
