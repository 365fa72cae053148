//! Variables and secret files of an agent's host that runs may name. In: the agent's options, a server as a run describes it. Out: a
//! refusal that names the option to use. Must not read what it refuses.

use std::path::{Path, PathBuf};
use tierlab_agents::token::TokenSource;
use tierlab_load::endpoint::TargetSpec;

/// Secrets that the agent's owner lets runs use.
#[derive(Debug, Clone, Default)]
pub struct Allowed {
    /// Names of variables that hold tokens.
    pub variables: Vec<String>,
    /// Folder of tokens, certificates and keys.
    pub folder: Option<PathBuf>,
}

impl Allowed {
    /// Checks every variable, token, certificate and key named in a server's description.
    ///
    /// # Errors
    /// The first name that is not allowed.
    pub fn check(&self, spec: &TargetSpec) -> Result<(), String> {
        match &spec.access.token {
            Some(TokenSource::Env(name)) if !self.variables.contains(name) => {
                return Err(format!(
                    "variable `{name}` is not allowed on this agent: start the agent with --allow-env {name}"
                ));
            }
            Some(TokenSource::File(file)) => self.check_file(file)?,
            _ => {}
        }
        let identity = spec.access.identity.iter().flat_map(|own| [&own.cert, &own.key]);
        for file in spec.access.ca.iter().chain(identity) {
            self.check_file(file)?;
        }
        spec.others.iter().try_for_each(|other| self.check(other))
    }

    fn check_file(&self, file: &Path) -> Result<(), String> {
        let is_inside = || {
            let folder = self.folder.as_ref()?.canonicalize().ok()?;
            Some(file.canonicalize().ok()?.starts_with(folder))
        };
        if is_inside() == Some(true) {
            return Ok(());
        }
        Err(format!(
            "{}: the file is not in a folder that this agent allows: put it there and start the agent with --secrets-dir FOLDER",
            file.display()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierlab_agents::tls::Identity;

    fn plain() -> TargetSpec {
        TargetSpec::plain("http://127.0.0.1:1", None)
    }

    #[test]
    fn only_named_variables_and_files_of_the_folder_are_allowed() {
        let place = tempfile::tempdir().unwrap();
        let (folder, outside) = (place.path().join("secrets"), place.path().join("other"));
        std::fs::create_dir(&folder).unwrap();
        for file in [folder.join("token"), outside.clone()] {
            std::fs::write(file, "x").unwrap();
        }
        std::os::unix::fs::symlink(&outside, folder.join("link")).unwrap();
        let allowed = Allowed {
            variables: vec!["TOKEN".to_owned()],
            folder: Some(folder.clone()),
        };
        let token = |source: TokenSource| {
            let mut spec = plain();
            spec.access.token = Some(source);
            spec
        };
        allowed.check(&plain()).unwrap();
        allowed.check(&token(TokenSource::Env("TOKEN".into()))).unwrap();
        allowed.check(&token(TokenSource::File(folder.join("token")))).unwrap();
        let refused = allowed
            .check(&token(TokenSource::Env("AWS_SECRET_ACCESS_KEY".into())))
            .unwrap_err();
        assert!(refused.contains("--allow-env AWS_SECRET_ACCESS_KEY"), "{refused}");
        for file in [
            &outside,
            &folder.join("../other"),
            &folder.join("link"),
            &folder.join("none"),
        ] {
            let mut with_identity = plain();
            with_identity.access.identity = Some(Identity {
                cert: folder.join("token"),
                key: file.clone(),
            });
            let mut with_ca = plain();
            with_ca.access.ca = Some(file.clone());
            let mut among_others = plain();
            among_others.others = vec![with_ca.clone()];
            for spec in [
                token(TokenSource::File(file.clone())),
                with_identity,
                with_ca,
                among_others,
            ] {
                let refused = allowed.check(&spec).unwrap_err();
                assert!(refused.contains("--secrets-dir"), "{refused}");
                assert!(Allowed::default().check(&spec).is_err());
            }
        }
    }
}
