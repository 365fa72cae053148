//! The cases in which objects change: replaced, removed, raced, listed, streamed.

use super::running::{Bench, expect_kind, expect_parts};
use anyhow::{Context as _, Result, ensure};
use futures::future::join_all;
use std::collections::BTreeMap;
use tierlab_storage::content::content;
use tierlab_storage::{Body, ErrorKind, ObjectPath};

impl Bench<'_> {
    pub(super) async fn changed(&self) -> Result<()> {
        let size = 20_000;
        for (name, new_size) in [("same-size", size), ("longer", 30_000), ("shorter", 100)] {
            let old = self.put(name, 8, size).await?;
            // Half of it was read before, and may be held by a cache.
            self.expect(&old, 8, 0..5000).await?;
            let new = self.put(name, 9, new_size).await?;
            for range in [0..size, 0..100, 4000..9000, size - 1..size] {
                let label = format!("{name}: {range:?} of the old version");
                self.expect_changed(&label, self.read(&old, range.clone()).await, 8, &range)?;
            }
            self.expect(&new, 9, 0..new_size).await?;
        }
        Ok(())
    }

    pub(super) async fn removed(&self) -> Result<()> {
        let object = self.put("gone", 10, 20_000).await?;
        self.expect(&object, 10, 0..5000).await?;
        self.tier.delete(&object.path).await?;
        for range in [0..20_000, 0..100, 15_000..15_001] {
            self.expect_changed(
                "read of what was removed",
                self.read(&object, range.clone()).await,
                10,
                &range,
            )?;
        }
        expect_kind(
            "stat of what was removed",
            self.tier.stat(&object.path).await,
            &[ErrorKind::NotFound],
        )
    }

    pub(super) async fn racing(&self) -> Result<()> {
        let sizes = [40_000u64, 50_123];
        let path = self.put("raced", 0, sizes[0]).await?.path;
        let readers = (0..4).map(|_| {
            let (tier, path) = (self.tier.clone(), path.clone());
            tokio::spawn(async move {
                for _ in 0..40 {
                    let object = match tier.stat(&path).await {
                        Ok(object) => object,
                        Err(e) => return expect_kind("stat in a race", Err::<(), _>(e), &[ErrorKind::NotFound]),
                    };
                    let ranges = [0..object.size, 1000..1100];
                    match tier.read_many(&object, &ranges).await {
                        Ok(many) => {
                            let seed = u64::from(object.size == sizes[1]);
                            expect_parts(&many, seed, &ranges)?;
                        }
                        error => {
                            expect_kind("read in a race", error, &[ErrorKind::Changed, ErrorKind::NotFound])?;
                        }
                    }
                }
                Ok(())
            })
        });
        let readers = readers.collect::<Vec<_>>();
        for round in 1..25usize {
            self.put("raced", (round % 2) as u64, sizes[round % 2]).await?;
        }
        join_all(readers).await.into_iter().try_for_each(|done| done?)
    }

    pub(super) async fn versions(&self) -> Result<()> {
        let mut seen = Vec::new();
        for seed in 0..8 {
            let object = self.put("versioned", seed, 3000).await?;
            ensure!(!seen.contains(&object.version), "version {} came twice", object.version);
            seen.push(object.version);
        }
        Ok(())
    }

    pub(super) async fn names(&self) -> Result<()> {
        for bad in [
            "",
            "/",
            "/etc/passwd",
            "..",
            "../x",
            "a/../../b",
            "a//b",
            "a/./b",
            "a\\..\\b",
            "a\0b",
        ] {
            expect_kind(
                &format!("the path {bad:?}"),
                ObjectPath::new(bad),
                &[ErrorKind::Invalid],
            )?;
        }
        let unusual = [
            "with space",
            "per%2Fcent",
            "plus+sign",
            "hash#mark",
            "what?",
            "ümläut",
            "..dots..",
            "a&b=c;d",
            "~",
        ];
        for (seed, name) in unusual.into_iter().enumerate() {
            let object = self.put(name, seed as u64, 1000).await?;
            self.expect(&object, seed as u64, 0..1000)
                .await
                .with_context(|| format!("{name:?}"))?;
        }
        let listed = self.names_below(&self.folder).await?;
        let mut want = unusual.map(str::to_owned);
        want.sort();
        ensure!(listed == want, "listed {listed:?}");
        Ok(())
    }

    pub(super) async fn long_names(&self) -> Result<()> {
        let segment = "s".repeat(ObjectPath::MAX_SEGMENT_BYTES);
        let room = ObjectPath::MAX_BYTES - self.folder.as_str().len() - 1;
        // Segments of at most 100 bytes and their slashes, up to the maximum length of a path.
        let deep: String = (1..=room)
            .map(|at| if at % 100 == 0 && at < room { '/' } else { 'd' })
            .collect();
        for (seed, name) in [(1, &segment), (2, &deep)] {
            let path = self.path(name)?;
            let body = Body::Bytes(content(seed, 0..1000).into());
            match self.tier.put(&path, body).await {
                Ok(object) => {
                    self.expect(&object, seed, 0..1000).await?;
                    let listed = self.names_below(&self.folder).await?;
                    ensure!(listed.contains(name), "a long name is not listed");
                }
                Err(e) => expect_kind("a long name", Err::<(), _>(e), &[ErrorKind::Invalid])?,
            }
        }
        for (label, name) in [
            ("segment", segment + "s"),
            ("path", deep + "d"),
            ("path", "x/".repeat(50_000) + "x"),
        ] {
            let refused = self.folder.join(&name);
            expect_kind(&format!("too long a {label}"), refused, &[ErrorKind::Invalid])?;
        }
        Ok(())
    }

    pub(super) async fn put_replaces(&self) -> Result<()> {
        for (seed, size) in [(1, 9000), (2, 100), (3, 0), (4, 70_000)] {
            let object = self.put("replaced", seed, size).await?;
            let seen = self.tier.stat(&object.path).await?;
            ensure!(seen == object, "stat says {seen:?}, put said {object:?}");
            self.expect(&object, seed, 0..size).await?;
        }
        let missing = Body::File(self.suite.scratch.join("no-such-file"));
        let refused = self.tier.put(&self.path("replaced")?, missing).await;
        expect_kind("put of a missing file", refused, &[ErrorKind::NotFound])?;
        let listed = self.names_below(&self.folder).await?;
        ensure!(listed == ["replaced"], "left behind: {listed:?}");
        let left = self.tier.stat(&self.path("replaced")?).await?;
        self.expect(&left, 4, 0..70_000).await
    }

    pub(super) async fn list(&self) -> Result<()> {
        let names = ["b/2", "b/10", "a", "b.c", "b/1/deep/er", "bb/1", "b-", "c"];
        let mut sizes = BTreeMap::new();
        for (i, name) in names.into_iter().enumerate() {
            sizes.insert(name.to_owned(), self.put(name, 1, 10 + i as u64).await?);
        }
        let listed = self.names_below(&self.folder).await?;
        let want = sizes.keys().cloned().collect::<Vec<_>>();
        ensure!(listed == want, "listed {listed:?}, where {want:?} should be");
        let below = self.names_below(&self.path("b")?).await?;
        ensure!(below == ["1/deep/er", "10", "2"], "below b: {below:?}");
        for object in self.tier.list(None).await? {
            let cut = object
                .path
                .as_str()
                .strip_prefix(self.folder.as_str())
                .and_then(|rest| rest.strip_prefix('/'));
            if let Some(name) = cut {
                let put = sizes.remove(name);
                ensure!(put.as_ref() == Some(&object), "listed {object:?}, put {put:?}");
            }
        }
        ensure!(sizes.is_empty(), "missing in the whole list: {sizes:?}");
        let one = self.tier.list(Some(&self.path("a")?)).await?;
        ensure!(one.len() == 1, "an object's own path lists {one:?}");
        let none = self.tier.list(Some(&self.path("nowhere")?)).await?;
        ensure!(none.is_empty(), "nothing lists {none:?}");
        Ok(())
    }

    pub(super) async fn big(&self) -> Result<()> {
        let size = (9 << 20) + 123;
        let file = self.suite.scratch.join("big.bin");
        tokio::fs::write(&file, content(11, 0..size)).await?;
        let path = self.path("big")?;
        let object = self.tier.put(&path, Body::File(file.clone())).await?;
        ensure!(object.size == size, "a put of {size} bytes says {}", object.size);
        self.expect(&object, 11, 0..size).await?;
        let ranges = [
            (1 << 20) - 5..(1 << 20) + 5,
            (4 << 20) + 1..(7 << 20),
            size - 1..size,
            0..1,
        ];
        let many = self.tier.read_many(&object, &ranges).await?;
        expect_parts(&many, 11, &ranges)?;
        // Replaced by a stream of other content: a reader of the old version gets an error.
        tokio::fs::write(&file, content(12, 0..size)).await?;
        let new = self.tier.put(&path, Body::File(file)).await?;
        let range = size - 5000..size;
        self.expect_changed(
            "the old big object",
            self.read(&object, range.clone()).await,
            11,
            &range,
        )?;
        self.expect(&new, 12, range).await
    }
}
