//! A run's messages to an agent: a plan, orders of steps, and the arrivals that an accepted order asks for. The input is cut into
//! messages: two bytes of length before each. Orders before the first plan are of a plan that is always there.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use std::sync::LazyLock;
use tierlab_agents::message::decode;
use tierlab_load::schedule::Schedule;
use tierlab_load::workers::message::{Job, StepOrder, ToWorker};
use tierlab_loadgen::plan::Plan;

const TEXT: &str = "name = \"p\"\nmodel = \"m\"\nseed = 1\nrepeats = 2\nwarmup_s = 0.1\nstep_s = 0.5\ndrain_s = 0.1\n\
                    [[load]]\nmode = \"realtime\"\nrates = [100]\n";
static FOLDER: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder"));

fn plan(text: &str) -> Option<Plan> {
    let folder: &Path = FOLDER.path();
    Plan::parse_sent(folder, &folder.join("plan.toml"), text).ok()
}

fuzz_target!(|data: &[u8]| {
    let (mut rest, mut accepted) = (data, plan(TEXT).expect("the plan is valid"));
    while let Some((len, behind)) = rest.split_first_chunk::<2>() {
        let (message, behind) = behind.split_at(usize::from(u16::from_le_bytes(*len)).min(behind.len()));
        rest = behind;
        match decode(message) {
            Ok(ToWorker::Job(Job::Setup(setup))) => accepted = plan(&setup.plan).unwrap_or(accepted),
            Ok(ToWorker::Job(Job::Order(text))) => {
                let Ok(order) = StepOrder::parse(&text) else { continue };
                if accepted.check_load(&order.load).is_ok() {
                    let (rate, seed) = (order.load.rate, order.seed);
                    let _ = Schedule::new(&accepted.arrivals, rate, accepted.warmup, accepted.window, seed);
                }
            }
            _ => {}
        }
    }
});
