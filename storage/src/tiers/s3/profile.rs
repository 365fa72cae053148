//! Credentials of an AWS profile, which `object_store` does not read. In: the text of `~/.aws/credentials` and
//! `~/.aws/config`. Out: keys and region of one profile. Static keys only: a profile's other services (single sign-on,
//! assumed roles, credential processes) are supported only through the environment variables that they can set.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// A profile's settings. Debug output shows no secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Profile {
    pub(super) access_key_id: Option<String>,
    pub(super) secret_access_key: Option<String>,
    pub(super) session_token: Option<String>,
    pub(super) region: Option<String>,
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profile")
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}

impl Profile {
    /// Profile that the environment names, or `default`. Missing files and profiles count as empty.
    pub(super) fn load() -> Self {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let name = variable("AWS_PROFILE").and_then(|name| name.into_string().ok());
        let home = variable("HOME").map(|home| PathBuf::from(home).join(".aws"));
        let text = |named: &str, file: &str| {
            let path = variable(named)
                .map(PathBuf::from)
                .or_else(|| Some(home.as_ref()?.join(file)))?;
            std::fs::read_to_string(path).ok()
        };
        let credentials = text("AWS_SHARED_CREDENTIALS_FILE", "credentials").unwrap_or_default();
        let config = text("AWS_CONFIG_FILE", "config").unwrap_or_default();
        Self::parse(&credentials, &config, name.as_deref().unwrap_or("default"))
    }

    /// A profile of a credentials file, which must have its keys.
    pub(super) fn read(file: &Path, name: &str) -> Result<Self, String> {
        let text = std::fs::read_to_string(file).map_err(|e| format!("`credentials_file` {}: {e}", file.display()))?;
        let profile = Self::parse(&text, "", name);
        if profile.access_key_id.is_none() || profile.secret_access_key.is_none() {
            return Err(format!(
                "`credentials_file` {} has no keys of a profile `{name}`",
                file.display()
            ));
        }
        Ok(profile)
    }

    /// Reads a profile from both files; the credentials file takes precedence.
    fn parse(credentials: &str, config: &str, name: &str) -> Self {
        // In the config file, all profiles but `default` have a word before their name.
        let mut keys = section(config, &format!("profile {name}"));
        keys.extend(section(config, name));
        keys.extend(section(credentials, name));
        let mut take = |key: &str| keys.remove(key).filter(|value| !value.is_empty()).map(str::to_owned);
        Self {
            access_key_id: take("aws_access_key_id"),
            secret_access_key: take("aws_secret_access_key"),
            session_token: take("aws_session_token"),
            region: take("region"),
        }
    }
}

/// The keys of `[name]`. Lines that are no `key = value` are passed over.
fn section<'t>(text: &'t str, name: &str) -> HashMap<&'t str, &'t str> {
    let mut inside = false;
    let mut keys = HashMap::new();
    for line in text.lines().map(str::trim) {
        if let Some(title) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            inside = title.0.trim() == name;
        } else if inside
            && !line.starts_with(['#', ';'])
            && let Some((key, value)) = line.split_once('=')
        {
            keys.insert(key.trim(), value.trim());
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CREDENTIALS: &str = "\
# mine
[default]
aws_access_key_id = AK1
aws_secret_access_key=hush/one==
[ work ]
aws_access_key_id = AK2
aws_secret_access_key = hush2
aws_session_token = token2
";
    const CONFIG: &str = "[default]\nregion = eu-central-1\n[profile work]\nregion = us-west-2\noutput = json\n";

    #[test]
    fn profiles_are_told_apart() {
        let default = Profile::parse(CREDENTIALS, CONFIG, "default");
        assert_eq!(default.access_key_id.as_deref(), Some("AK1"));
        assert_eq!(default.secret_access_key.as_deref(), Some("hush/one=="));
        assert_eq!(
            (default.session_token, default.region.as_deref()),
            (None, Some("eu-central-1"))
        );
        let work = Profile::parse(CREDENTIALS, CONFIG, "work");
        assert_eq!(work.session_token.as_deref(), Some("token2"));
        assert_eq!(work.region.as_deref(), Some("us-west-2"));
        assert!(!format!("{work:?}").contains("hush2"));
        assert_eq!(Profile::parse(CREDENTIALS, CONFIG, "other"), Profile::default());
    }

    proptest! {
        #[test]
        fn any_text_is_taken(text in "[\\[\\]=a-z #;\n]{0,100}") {
            let _ = Profile::parse(&text, &text, "a");
        }
    }
}
