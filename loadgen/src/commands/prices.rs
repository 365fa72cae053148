//! The `prices` command: the prices' file brought up to date by AWS's public price list.
//!
//! In: offer files of the list, on this machine or at an address. Out: the file changed, and a line for each of its entries. Which
//! entry is which product, [`crate::pricing::refresh`] knows.

use crate::error::RunError;
use crate::pricing::refresh::{Offer, refresh};
use crate::server::control::carries_credentials;
use crate::store::atomic::write_atomically;
use reqwest::{Client, Url};
use std::fs::{self, File};
use std::io::Cursor;
use std::path::PathBuf;
use std::time::Duration;
use tierlab_load::redact;

/// The most offer files of a folder.
const MOST_FILES: usize = 64;
/// The longest offer file that is fetched: EC2's of one region has some 400 MB.
const MOST_BYTES: usize = 2 << 30;
/// From one piece of it to the next.
const SILENCE: Duration = Duration::from_secs(60);

/// What a file of prices is brought up to date by.
#[derive(Debug, Clone)]
pub struct Options {
    /// Offer files, or folders of them.
    pub from: Vec<PathBuf>,
    /// Addresses of offer files.
    pub urls: Vec<Url>,
    /// The file of prices.
    pub prices: PathBuf,
    /// Whether it is left as it is.
    pub dry_run: bool,
}

/// Brings the file up to date, and prints a line for each of its entries.
///
/// # Errors
/// A file or an address cannot be read or is no offer file, the file of prices cannot be read or written, or nothing of it was
/// found in the list.
pub async fn run(options: &Options) -> Result<(), RunError> {
    let text = fs::read_to_string(&options.prices).map_err(RunError::io(&options.prices))?;
    let mut offers = Vec::new();
    for path in files(&options.from)? {
        let offer = Offer::read(&path.display().to_string(), || File::open(&path));
        offers.push(offer.map_err(|error| RunError::Usage(error.to_string()))?);
    }
    for url in &options.urls {
        let bytes = fetch(url).await?;
        let offer = Offer::read(url.as_str(), || Ok(Cursor::new(&bytes)));
        offers.push(offer.map_err(|error| RunError::Usage(error.to_string()))?);
    }
    let found = refresh(&options.prices, &text, &offers)?;
    for line in &found.refreshed {
        println!("{line}");
    }
    for line in &found.left {
        println!("left as it is: {line}");
    }
    if found.refreshed.is_empty() {
        let codes: Vec<&str> = offers.iter().map(|offer| offer.code.as_str()).collect();
        return Err(RunError::Unsound(format!(
            "{}: nothing of it is in what was given ({}); offers that are known here are AmazonEC2, AmazonS3 and AmazonEFS",
            options.prices.display(),
            codes.join(", ")
        )));
    }
    if !options.dry_run && found.text != text {
        write_atomically(&options.prices, found.text.as_bytes())?;
    }
    Ok(())
}

/// The offer files, those of a folder by name.
fn files(from: &[PathBuf]) -> Result<Vec<PathBuf>, RunError> {
    let mut files = Vec::new();
    for path in from {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries = fs::read_dir(path).map_err(RunError::io(path))?;
        let mut inside: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        inside.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
        inside.sort();
        if inside.is_empty() || inside.len() > MOST_FILES {
            return Err(RunError::Usage(format!(
                "{}: {} files end in .json; 1 to {MOST_FILES} are read",
                path.display(),
                inside.len()
            )));
        }
        files.append(&mut inside);
    }
    Ok(files)
}

async fn fetch(url: &Url) -> Result<Vec<u8>, RunError> {
    let refuse = |what: &str| RunError::Usage(format!("{}: {what}", redact::urls(url.as_str())));
    if carries_credentials(url) {
        return Err(refuse(
            "give the address without a name, a password or a token: the list is public, and the address is written down",
        ));
    }
    let failed = |error: reqwest::Error| refuse(&describe(&error));
    let client = Client::builder().read_timeout(SILENCE).build().map_err(failed)?;
    let mut reply = client.get(url.clone()).send().await.map_err(failed)?;
    if !reply.status().is_success() {
        return Err(refuse(&format!("answered {}", reply.status())));
    }
    let mut bytes = Vec::new();
    while let Some(piece) = reply.chunk().await.map_err(failed)? {
        if bytes.len() + piece.len() > MOST_BYTES {
            return Err(refuse(&format!(
                "longer than {MOST_BYTES} bytes; give the offer file of one region"
            )));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

/// An error with what is behind it: by itself it says only that a request failed.
fn describe(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut behind = std::error::Error::source(error);
    while let Some(cause) = behind {
        text += &format!(": {cause}");
        behind = cause.source();
    }
    text
}
