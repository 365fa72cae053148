//! Files that decide what a plan sends: `[inputs]`, `[keys]`, `[arrival]`, a demand's trace, and the bodies of its servers. In: a plan.
//! Out: their paths, and the plan with them for load processes. An agent has its own certificates and tokens.
//! Also removes credentials from the text: `***` for the values of headers and of secret keys, and for the secret parts of URLs.

use super::check::below;
use super::{Plan, TargetPlan};
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use tierlab_load::endpoint::TargetSpec;
use tierlab_load::redact;
use tierlab_load::workers::PlanText;
use toml::de::{DeTable, DeValue};

/// Maximum files of one folder.
const MAX_PER_FOLDER: usize = 10_000;
/// Replacement of a secret value.
const HIDDEN: &str = "\"***\"";
/// Parts of keys whose values are secret, and those with which a key names another place of a secret, or counts tokens.
const SECRET: [&str; 5] = ["secret", "password", "token", "credential", "access_key"];
const NOT_SECRET: [&str; 3] = ["_env", "_file", "tokens"];

impl Plan {
    /// Plan for load processes of this host.
    pub fn local_text(&self) -> PlanText {
        PlanText {
            file: self.file.clone(),
            text: self.text.clone(),
            has_secrets: has_secrets(&self.text),
            files: Vec::new(),
        }
    }

    /// Plan for agents on other hosts, with its files and absolute paths without `..`.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn remote_text(&self) -> io::Result<PlanText> {
        let files = self.request_files()?;
        Ok(PlanText {
            file: absolute(&self.file),
            files: files.iter().map(|file| absolute(file)).collect(),
            ..self.local_text()
        })
    }

    /// Files that decide what is sent, and those in its folders.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn request_files(&self) -> io::Result<Vec<PathBuf>> {
        let mut files = BTreeSet::new();
        for path in &self.files {
            if !path.is_dir() {
                files.insert(path.clone());
                continue;
            }
            for entry in std::fs::read_dir(path)?.take(MAX_PER_FOLDER) {
                let entry = entry?.path();
                if entry.is_file() {
                    files.insert(entry);
                }
            }
        }
        Ok(files.into_iter().collect())
    }
}

impl TargetPlan {
    /// Target of a load process, with an absolute path of its bodies; `None` without an address.
    pub fn spec(&self) -> Option<TargetSpec> {
        let mut custom = self.custom.clone();
        if let Some(file) = custom.as_mut().and_then(|custom| custom.body.file_mut()) {
            *file = absolute(file);
        }
        Some(TargetSpec {
            others: Vec::new(),
            url: self.url.clone()?,
            grpc_url: self.grpc_url.clone(),
            model_version: self.model_version.clone(),
            access: self.access.clone(),
            custom,
        })
    }
}

fn absolute(path: &Path) -> PathBuf {
    below(&std::env::current_dir().unwrap_or_default(), path)
}

/// Hides headers, secret keys and the secret parts of URLs in a plan. Text that is not TOML is hidden as a whole.
pub(crate) fn redacted(text: &str) -> String {
    let Some(secrets) = secrets(text) else {
        return HIDDEN.to_owned();
    };
    let (mut out, mut from) = (String::with_capacity(text.len()), 0);
    for Range { start, end } in secrets {
        out = out + &text[from..start] + HIDDEN;
        from = end;
    }
    redact::urls(&(out + &text[from..]))
}

/// True if a plan has headers or secret keys.
fn has_secrets(text: &str) -> bool {
    secrets(text).is_none_or(|secrets| !secrets.is_empty())
}

/// Places of secret values, ascending; `None` if the text is not TOML.
fn secrets(text: &str) -> Option<Vec<Range<usize>>> {
    let mut found = Vec::new();
    find(DeTable::parse(text).ok()?.get_ref(), false, &mut found);
    found.sort_by_key(|span| span.start);
    Some(found)
}

/// Finds the secret values of a table, all of them if it `is_secret` itself.
fn find(table: &DeTable<'_>, is_secret: bool, found: &mut Vec<Range<usize>>) {
    for (key, value) in table {
        let is_secret = is_secret || is_secret_key(key.get_ref());
        let mut values = vec![value];
        while let Some(value) = values.pop() {
            match value.get_ref() {
                DeValue::Table(table) => find(table, is_secret, found),
                DeValue::Array(items) => values.extend(items.iter()),
                _ if is_secret => found.push(value.span()),
                _ => {}
            }
        }
    }
}

fn is_secret_key(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let is_reference = NOT_SECRET.iter().any(|end| key.ends_with(end));
    key == "headers" || (!is_reference && SECRET.iter().any(|part| key.contains(part)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn plans_lose_the_values_of_secret_keys() {
        let plan = "name = \"a\"\n[lab.tier.s3.set]\nendpoint = \"http://k:s@h:1\"\nsecret_access_key = \"x\"\n# token = 1\nrates = [1, 2]\n";
        let kept = redacted(plan);
        assert_eq!(
            kept,
            "name = \"a\"\n[lab.tier.s3.set]\nendpoint = \"http://***@h:1\"\nsecret_access_key = \"***\"\n# token = 1\nrates = [1, 2]\n"
        );
        assert_eq!(redacted(&kept), kept);
        assert_eq!(redacted("not = = toml"), HIDDEN);
        let named = "token_env = \"NAME\"\ntoken_file = \"t\"\ntokens = \"/usage/n\"\n";
        assert_eq!(redacted(named), named);
        assert!(has_secrets(plan) && !has_secrets(named));
    }

    #[test]
    fn values_of_headers_are_hidden_however_they_are_written() {
        for (plan, kept) in [
            ("headers = { X-Key = 'S3CRET' }", "headers = { X-Key = \"***\" }"),
            (
                "[target.headers]  # keys\nX-Key = \"S3CRET\"  # one\n[x]\na = 1",
                "[target.headers]  # keys\nX-Key = \"***\"  # one\n[x]\na = 1",
            ),
            (
                "[target.\"headers\"]\n\"X=Key\" = \"\"\"\nS3CRET\"\"\"\n[[x]]\na = 1",
                "[target.\"headers\"]\n\"X=Key\" = \"***\"\n[[x]]\na = 1",
            ),
            ("headers.X-Key = \"S3CRET\"", "headers.X-Key = \"***\""),
            (
                "target = { url = \"u\", headers = { X = \"S3CRET\" } }",
                "target = { url = \"u\", headers = { X = \"***\" } }",
            ),
            (
                "[[variant]]\ntarget.headers = {\n  X = \"S3CRET\", # }\n  Y = \"S3CRET\"\n}\na = 1",
                "[[variant]]\ntarget.headers = {\n  X = \"***\", # }\n  Y = \"***\"\n}\na = 1",
            ),
            (
                "set = { tokens = 1, token = [['S3CRET'], { a = 'S3CRET' }] }",
                "set = { tokens = 1, token = [[\"***\"], { a = \"***\" }] }",
            ),
        ] {
            assert_eq!(redacted(plan), kept);
            assert_eq!(redacted(kept), kept);
            assert!(has_secrets(plan));
        }
    }

    proptest! {
        #[test]
        fn what_is_hidden_stays_hidden(text in "[a-z:/@?#=\\n\" .]{0,60}", user in "[a-z]{8}", secret in "[A-Z]{12}") {
            let with = format!("{text} http://{user}:{secret}@h/p?q={secret} {text}");
            for with in [redact::urls(&with), redacted(&format!("# {}", with.replace('\n', " "))), redacted(&with)] {
                prop_assert!(!with.contains(&secret), "{}", with);
                prop_assert_eq!(redact::urls(&with), with);
            }
        }
    }
}
