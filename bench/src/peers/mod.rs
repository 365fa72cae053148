//! Foreign tools as a comparison. In: a point and its file. Out: the equivalent command, and its figures.

mod elbencho;
mod fio;

use crate::plan::{Access, Point};
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Grace time after which a hung tool counts as failed.
const GRACE: Duration = Duration::from_secs(30);

/// Foreign tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Tool {
    /// Jens Axboe's fio.
    Fio,
    /// Sven Breuner's elbencho.
    Elbencho,
}

/// Figures of a tool in one repeat.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PeerFigures {
    pub(crate) iops: f64,
    pub(crate) mb_per_s: f64,
    pub(crate) p50_us: Option<f64>,
    pub(crate) p95_us: Option<f64>,
    pub(crate) p99_us: Option<f64>,
    pub(crate) command: String,
}

/// Tools on this machine.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peers {
    found: Vec<(Tool, PathBuf)>,
    /// Missing tools, in words for the report.
    pub(crate) notes: Vec<String>,
}

/// Command with the parser of its output.
pub(crate) struct Job {
    pub(crate) tool: Tool,
    program: PathBuf,
    arguments: Vec<String>,
}

impl Peers {
    /// Searches `.runtime/`, in which `scripts/setup` installs tools, and the path.
    pub(crate) fn look() -> Self {
        let mut peers = Self::default();
        for (tool, name, how) in [
            (Tool::Fio, "fio", "`scripts/setup fio` unpacks Debian's"),
            (Tool::Elbencho, "elbencho", "its releases are on its project's page"),
        ] {
            match find(name) {
                Some(path) => peers.found.push((tool, path)),
                None => peers.notes.push(format!("{name} is not installed: {how}")),
            }
        }
        peers
    }

    /// Returns the jobs equivalent to a point, on its one local file.
    pub(crate) fn jobs(&self, point: &Point, access: &Access, file: &Path) -> Vec<Job> {
        let job = |(tool, program): &(Tool, PathBuf)| {
            let arguments = match tool {
                Tool::Fio => fio::arguments(point, access, file),
                Tool::Elbencho => elbencho::arguments(point, access, file),
            };
            arguments.map(|arguments| Job {
                tool: *tool,
                program: program.clone(),
                arguments,
            })
        };
        self.found.iter().filter_map(job).collect()
    }
}

fn find(name: &str) -> Option<PathBuf> {
    let own = PathBuf::from(format!(".runtime/{name}/{name}"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut all = std::iter::once(own).chain(std::env::split_paths(&path).map(|folder| folder.join(name)));
    all.find(|file| file.is_file())
}

impl Job {
    /// Returns the command line, without the tool's folder.
    pub(crate) fn command(&self) -> String {
        let name = self.program.file_name().map(|name| name.to_string_lossy().into_owned());
        let words = name.into_iter().chain(self.arguments.iter().cloned());
        words.collect::<Vec<_>>().join(" ")
    }

    /// Runs the job.
    ///
    /// # Errors
    /// The tool fails, hangs, or prints output that cannot be parsed.
    pub(crate) fn run(&self, access: &Access) -> Result<PeerFigures> {
        let scratch = tempfile::tempdir().context("cannot make a temporary folder")?;
        let output = self.output(scratch.path(), access.warmup + access.window + GRACE)?;
        let figures = match self.tool {
            Tool::Fio => fio::figures(&output),
            Tool::Elbencho => {
                elbencho::figures(&std::fs::read_to_string(scratch.path().join(elbencho::FILE)).unwrap_or_default())
            }
        };
        let mut figures = figures.with_context(|| format!("cannot read what this printed: {}", self.command()))?;
        figures.command = self.command();
        Ok(figures)
    }

    fn output(&self, folder: &Path, limit: Duration) -> Result<String> {
        let program = self.program.canonicalize().context("the tool is gone")?;
        let (out, err) = (folder.join("out"), folder.join("err"));
        let mut child = Command::new(program)
            .args(&self.arguments)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(std::fs::File::create(&out)?)
            .stderr(std::fs::File::create(&err)?)
            .spawn()
            .with_context(|| format!("cannot start {}", self.command()))?;
        let until = Instant::now() + limit;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if Instant::now() > until {
                let _ = child.kill();
                let _ = child.wait();
                bail!("not done after {} s: {}", limit.as_secs(), self.command());
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let said = std::fs::read_to_string(&err).unwrap_or_default();
        ensure!(status.success(), "{status}: {}: {}", self.command(), said.trim());
        Ok(std::fs::read_to_string(&out)?)
    }
}
