//! The machine's GPUs, read through NVML by a separate thread, because each measurement waits for NVML to measure the
//! bus.
//!
//! In: an interval. Out: gauges, and counters that grow by measured amounts: busy time is NVML's utilisation times the
//! time since the last measurement. Without NVML there are no metrics, and the log gives the reason.

use prometheus::{Counter, Gauge, GaugeVec, Registry};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use tierlab_protocol::metrics as names;
use tierlab_storage::device::Search;
use tierlab_storage::device::nvml::{GpuSample, Nvml};
use tierlab_storage::wrappers::Registrar;

/// Starts a thread that measures until the returned sender is dropped; `None` if there is no GPU or `every` is zero.
///
/// # Errors
/// Fails if a name is already registered.
pub(crate) fn watch(registry: &Registry, every: Duration) -> Result<Option<SyncSender<()>>, prometheus::Error> {
    if every.is_zero() {
        return Ok(None);
    }
    let nvml = match Nvml::open(Search::default()) {
        Ok(nvml) => nvml,
        Err(error) => {
            tracing::debug!(why = error.to_string(), "no GPU metrics");
            return Ok(None);
        }
    };
    let mut gpus = register(registry, &nvml)?;
    let mut measure = move || {
        for (gpu, sample) in gpus.iter_mut().zip(nvml.sample()) {
            gpu.note(Instant::now(), sample);
        }
    };
    measure();
    let (stop, stopped) = sync_channel(1);
    let body = move || {
        while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
            measure();
        }
    };
    let thread = std::thread::Builder::new().name("nvml".to_owned()).spawn(body);
    let thread = thread.inspect_err(|error| tracing::warn!(%error, "cannot start the thread that measures the GPUs"));
    Ok(thread.ok().map(|_| stop))
}

/// Metrics of a GPU, and the previous measurement.
struct Gpu {
    busy_seconds: Counter,
    energy_joules: Counter,
    /// Gauges in the order of [`Gpu::note`].
    gauges: [Gauge; 8],
    before: Option<(Instant, GpuSample)>,
}

fn register(registry: &Registry, nvml: &Nvml) -> Result<Vec<Gpu>, prometheus::Error> {
    let on = Registrar(registry);
    let labels = ["gpu", "name", "uuid", "driver"];
    let info: GaugeVec = on.gauges(names::GPU_INFO, "The machine's GPUs; the value is 1.", &labels)?;
    let busy = on.counters(names::GPU_BUSY_SECONDS, "Time in which a kernel ran.", &["gpu"])?;
    let energy = on.counters(names::GPU_ENERGY_JOULES, "Energy consumed.", &["gpu"])?;
    let power = on.gauges(names::GPU_POWER_WATTS, "Power draw.", &["gpu"])?;
    let by_all = "Memory in use, by all processes.";
    let used = on.gauges(names::GPU_MEMORY_USED_BYTES, by_all, &["gpu"])?;
    let total = on.gauges(names::GPU_MEMORY_TOTAL_BYTES, "Memory.", &["gpu"])?;
    let clock = on.gauges(names::GPU_CLOCK_HZ, "Clocks.", &["gpu", "clock"])?;
    let directions = ["gpu", "direction"];
    let by_bus = "Bytes per second over the bus.";
    let pcie = on.gauges(names::GPU_PCIE_BYTES_PER_S, by_bus, &directions)?;
    let temperature = on.gauges(names::GPU_TEMPERATURE_CELSIUS, "Temperature.", &["gpu"])?;
    let gpus = nvml.identities().into_iter().enumerate().map(|(index, identity)| {
        let gpu = index.to_string();
        let labels = [gpu.as_str(), &identity.name, &identity.uuid, &identity.driver];
        info.with_label_values(&labels).set(1.0);
        Gpu {
            busy_seconds: busy.with_label_values(&[&gpu]),
            energy_joules: energy.with_label_values(&[&gpu]),
            gauges: [
                power.with_label_values(&[&gpu]),
                used.with_label_values(&[&gpu]),
                total.with_label_values(&[&gpu]),
                clock.with_label_values(&[gpu.as_str(), "sm"]),
                clock.with_label_values(&[gpu.as_str(), "memory"]),
                pcie.with_label_values(&[gpu.as_str(), "received"]),
                pcie.with_label_values(&[gpu.as_str(), "sent"]),
                temperature.with_label_values(&[&gpu]),
            ],
            before: None,
        }
    });
    Ok(gpus.collect())
}

impl Gpu {
    fn note(&mut self, now: Instant, sample: GpuSample) {
        if let Some((then, before)) = &self.before {
            let seconds = now.saturating_duration_since(*then).as_secs_f64();
            self.busy_seconds.inc_by(sample.busy_share.unwrap_or(0.0) * seconds);
            self.energy_joules.inc_by(joules(before, &sample, seconds));
        }
        let (used, total) = sample.memory_bytes.unzip();
        let values = [
            sample.power_watts,
            used.map(|bytes| bytes as f64),
            total.map(|bytes| bytes as f64),
            sample.sm_clock_hz,
            sample.memory_clock_hz,
            sample.pcie_received,
            sample.pcie_sent,
            sample.temperature_celsius,
        ];
        for (gauge, value) in self.gauges.iter().zip(values) {
            if let Some(value) = value {
                gauge.set(value);
            }
        }
        self.before = Some((now, sample));
    }
}

/// Energy between two measurements, from the GPU's own counter, or from its power if it has none.
fn joules(before: &GpuSample, after: &GpuSample, seconds: f64) -> f64 {
    let energies = before.energy_joules.zip(after.energy_joules);
    let counted = energies.map(|(before, after)| after - before);
    let by_power = || after.power_watts.unwrap_or(0.0) * seconds;
    counted.filter(|joules| *joules >= 0.0).unwrap_or_else(by_power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn energy_is_counted_or_comes_of_the_power() {
        let sample = |energy_joules, power_watts| GpuSample {
            energy_joules,
            power_watts,
            ..GpuSample::default()
        };
        let (before, after) = (sample(Some(10.0), Some(5.0)), sample(Some(30.0), Some(5.0)));
        assert_eq!(joules(&before, &after, 2.0), 20.0);
        assert_eq!(joules(&sample(None, None), &sample(None, Some(5.0)), 2.0), 10.0);
        assert_eq!(joules(&after, &before, 2.0), 10.0, "the counter started anew");
        assert_eq!(joules(&sample(None, None), &sample(None, None), 2.0), 0.0);
    }
}
