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
struct Tool {
    name: &'static str,
    /// Advice if it is missing.
    how: &'static str,
    /// Arguments of the equivalent of a point on its file; `None` if the tool has none.
    arguments: fn(&Point, &Access, &Path) -> Option<Vec<String>>,
    /// File that holds its output, in the folder in which it runs.
    output: &'static str,
    /// Parser of the output.
    figures: fn(&str) -> Result<PeerFigures>,
}

/// File of a tool's standard output.
const STDOUT: &str = "out";

/// Jens Axboe's fio and Sven Breuner's elbencho.
const TOOLS: [Tool; 2] = [
    Tool {
        name: "fio",
        how: "`scripts/setup fio` unpacks Debian's",
        arguments: fio::arguments,
        output: STDOUT,
        figures: fio::figures,
    },
    Tool {
        name: "elbencho",
        how: "its releases are on its project's page",
        arguments: elbencho::arguments,
        output: elbencho::FILE,
        figures: elbencho::figures,
    },
];

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
#[derive(Default)]
pub(crate) struct Peers {
    found: Vec<(Tool, PathBuf)>,
    /// Missing tools, in words for the report.
    pub(crate) notes: Vec<String>,
}

/// Command with the parser of its output.
pub(crate) struct Job<'a> {
    tool: &'a Tool,
    program: &'a Path,
    arguments: Vec<String>,
}

impl Peers {
    /// Searches `.runtime/`, in which `scripts/setup` installs tools, and the path.
    pub(crate) fn look() -> Self {
        let mut peers = Self::default();
        for tool in TOOLS {
            match find(tool.name) {
                Some(path) => peers.found.push((tool, path)),
                None => peers
                    .notes
                    .push(format!("{} is not installed: {}", tool.name, tool.how)),
            }
        }
        peers
    }

    /// Returns the jobs equivalent to a point, on its one local file.
    pub(crate) fn jobs(&self, point: &Point, access: &Access, file: &Path) -> Vec<Job<'_>> {
        let mut jobs = Vec::new();
        for (tool, program) in &self.found {
            let arguments = (tool.arguments)(point, access, file);
            jobs.extend(arguments.map(|arguments| Job {
                tool,
                program,
                arguments,
            }));
        }
        jobs
    }
}

fn find(name: &str) -> Option<PathBuf> {
    let own = PathBuf::from(format!(".runtime/{name}/{name}"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut all = std::iter::once(own).chain(std::env::split_paths(&path).map(|folder| folder.join(name)));
    all.find(|file| file.is_file())
}

impl Job<'_> {
    /// Name of the tool.
    pub(crate) const fn name(&self) -> &'static str {
        self.tool.name
    }

    /// Returns the command line, without the tool's folder.
    fn command(&self) -> String {
        format!("{} {}", self.tool.name, self.arguments.join(" "))
    }

    /// Runs the job.
    ///
    /// # Errors
    /// The tool fails, hangs, or prints output that cannot be parsed.
    pub(crate) fn run(&self, access: &Access) -> Result<PeerFigures> {
        let scratch = tempfile::tempdir().context("cannot make a temporary folder")?;
        self.wait(scratch.path(), access.warmup + access.window + GRACE)?;
        let output = std::fs::read_to_string(scratch.path().join(self.tool.output)).unwrap_or_default();
        let figures = (self.tool.figures)(&output);
        let mut figures = figures.with_context(|| format!("cannot read what this printed: {}", self.command()))?;
        figures.command = self.command();
        Ok(figures)
    }

    fn wait(&self, folder: &Path, limit: Duration) -> Result<()> {
        let program = self.program.canonicalize().context("the tool is gone")?;
        let (out, err) = (folder.join(STDOUT), folder.join("err"));
        let mut child = Command::new(program)
            .args(&self.arguments)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(std::fs::File::create(out)?)
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
        Ok(())
    }
}
