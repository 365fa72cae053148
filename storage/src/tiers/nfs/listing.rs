//! Recursive listing. In: a path. Out: all files below it, collected directory by directory.

use super::client::{Client, PageStart};
use super::fault::Fault;
use super::tree::{PARTIAL, Tree, describe};
use crate::error::StorageError;
use crate::limits::Listing;
use crate::path::ObjectPath;
use crate::tier::{Object, ReadCost};
use nfs3_types::nfs3::{fattr3, ftype3, nfs_fh3, nfsstat3};

/// Maximum attempts to read a directory that changes during the listing.
const LISTING_ATTEMPTS: u32 = 3;

/// Bytes of an entry beside its name, for the limit of a listing: the path before it and the version.
const ENTRY_BYTES: usize = 128;

impl Tree {
    /// Every file at and below a path, in order of path.
    pub(super) async fn list(&self, prefix: Option<&ObjectPath>) -> Result<Vec<Object>, StorageError> {
        let about = prefix.map_or_else(|| self.url.to_string(), |path| self.name(path));
        let mut cost = ReadCost::default();
        let mut client = self.client(&about, &mut cost);
        let generation = self.generation();
        let mut listed = self.list_once(&mut client, prefix).await;
        if matches!(&listed, Err(fault) if fault.is_stale()) {
            self.refresh(&mut client, generation)
                .await
                .map_err(|fault| fault.about(&about))?;
            listed = self.list_once(&mut client, prefix).await;
        }
        listed.map_err(|fault| fault.about(&about))
    }

    async fn list_once(&self, client: &mut Client<'_>, prefix: Option<&ObjectPath>) -> Result<Vec<Object>, Fault> {
        let mut listing = Listing::of(client.about);
        let mut directories = Vec::new();
        match prefix {
            None => directories.push((None, self.root())),
            Some(path) => match self.lookup(client, path).await {
                Ok((handle, attributes)) => match attributes.type_ {
                    ftype3::NF3REG => listing.push(describe(path, &attributes))?,
                    ftype3::NF3DIR => directories.push((Some(path.clone()), handle)),
                    _ => {}
                },
                Err(fault) if fault.is(nfsstat3::NFS3ERR_NOENT) || fault.is(nfsstat3::NFS3ERR_NOTDIR) => {}
                Err(fault) => return Err(fault),
            },
        }
        while let Some((path, handle)) = directories.pop() {
            for (name, handle, attributes) in self.entries(client, &handle, &mut listing).await? {
                let below = path
                    .as_ref()
                    .map_or_else(|| ObjectPath::new(&name), |path| path.join(&name));
                let Ok(below) = below else { continue };
                match attributes.type_ {
                    ftype3::NF3REG => listing.keep(describe(&below, &attributes)),
                    ftype3::NF3DIR => directories.push((Some(below), handle)),
                    _ => {}
                }
            }
        }
        Ok(listing.end())
    }

    /// Current entries of a directory. Leaves out names that are not UTF-8, and files under construction.
    async fn entries(
        &self,
        client: &mut Client<'_>,
        directory: &nfs_fh3,
        listing: &mut Listing,
    ) -> Result<Vec<(String, nfs_fh3, fattr3)>, Fault> {
        let (mut plus, mut attempts) = (true, 1);
        let mut from = PageStart::default();
        let mut found = Vec::new();
        loop {
            let page = match plus {
                true => client.readdirplus(directory, from).await,
                false => client.readdir(directory, from).await,
            };
            let page = match page {
                Err(fault) if plus && fault.is(nfsstat3::NFS3ERR_NOTSUPP) => {
                    plus = false;
                    continue;
                }
                Err(fault) if fault.is(nfsstat3::NFS3ERR_BAD_COOKIE) && attempts < LISTING_ATTEMPTS => {
                    attempts += 1;
                    from = PageStart::default();
                    found.clear();
                    continue;
                }
                other => other?,
            };
            // A page without entries counts too: a server may send them endlessly.
            listing.named(0)?;
            for entry in page.entries {
                // With the folders before it, and the version's text.
                listing.named(entry.name.len() + ENTRY_BYTES)?;
                let Ok(name) = String::from_utf8(entry.name) else {
                    continue;
                };
                if name == "." || name == ".." || name.starts_with(PARTIAL) {
                    continue;
                }
                let (handle, attributes) = match (entry.handle, entry.attributes) {
                    (Some(handle), Some(attributes)) => (handle, attributes),
                    // The server sent the name alone.
                    _ => match client.lookup(directory, &name).await {
                        Err(fault) if fault.is(nfsstat3::NFS3ERR_NOENT) => continue,
                        other => other?,
                    },
                };
                found.push((name, handle, attributes));
            }
            match page.next {
                Some(next) => from = next,
                None => return Ok(found),
            }
        }
    }
}
