//! NVIDIA's management library: the load of GPUs, seen from outside. In: nothing. Out: the identity of each GPU, and
//! samples of its state. Values that a GPU does not support are left out. Signatures: nvml.h, as in NVIDIA's NVML API
//! reference. Declared here: cudarc does not bind NVML.

use super::find::{NVML, Search};
use anyhow::{Context as _, Result, anyhow, bail};
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// Maximum length of NVML's texts.
const TEXT: usize = 96;
/// `nvmlClockType_t`: the streaming multiprocessors' and the memory's.
const CLOCKS: [c_int; 2] = [1, 2];
/// `nvmlPcieUtilCounter_t`.
const PCIE_SENT: c_int = 0;
const PCIE_RECEIVED: c_int = 1;
/// `NVML_TEMPERATURE_GPU`.
const SENSOR_GPU: c_int = 0;

/// `nvmlDevice_t`.
#[derive(Debug, Clone, Copy)]
struct Device(*mut c_void);

// SAFETY: an opaque handle; NVML's calls are thread-safe.
unsafe impl Send for Device {}

type Text = unsafe extern "C" fn(*mut c_void, *mut c_char, c_uint) -> c_int;
type Number = unsafe extern "C" fn(*mut c_void, *mut c_uint) -> c_int;
type NumberOf = unsafe extern "C" fn(*mut c_void, c_int, *mut c_uint) -> c_int;

/// The functions of NVML; the library stays loaded for the life of the process.
#[derive(Debug)]
pub struct Nvml {
    shutdown: unsafe extern "C" fn() -> c_int,
    driver_version: unsafe extern "C" fn(*mut c_char, c_uint) -> c_int,
    name: Text,
    uuid: Text,
    /// Fills per cent of the GPU and of its memory.
    utilization: Number,
    /// Fills total, free and used bytes.
    memory: unsafe extern "C" fn(*mut c_void, *mut u64) -> c_int,
    clock: NumberOf,
    power: Number,
    energy: unsafe extern "C" fn(*mut c_void, *mut u64) -> c_int,
    pcie: NumberOf,
    temperature: NumberOf,
    devices: Vec<Device>,
}

/// Identity of a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Model, such as `NVIDIA H200`.
    pub name: String,
    /// Permanent unique id.
    pub uuid: String,
    /// Version of the driver.
    pub driver: String,
}

/// Sample of a GPU's state.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct GpuSample {
    /// Share of the last sampling period in which a kernel ran: NVML's, between a sixth of a second and a second.
    pub busy_share: Option<f64>,
    /// Memory in use and in all, in bytes.
    pub memory_bytes: Option<(u64, u64)>,
    /// Clock of the streaming multiprocessors, in hertz.
    pub sm_clock_hz: Option<f64>,
    /// Clock of the memory, in hertz.
    pub memory_clock_hz: Option<f64>,
    /// Power draw, in watts.
    pub power_watts: Option<f64>,
    /// Joules since the driver was loaded; from Volta on.
    pub energy_joules: Option<f64>,
    /// Over the bus to the GPU, in bytes per second, over 20 ms.
    pub pcie_received: Option<f64>,
    /// Bytes per second over the bus from the GPU, over 20 ms.
    pub pcie_sent: Option<f64>,
    /// Degrees Celsius.
    pub temperature_celsius: Option<f64>,
}

impl Nvml {
    /// Finds the library, and the GPUs.
    ///
    /// # Errors
    /// Names the files that were tried, returns NVML's error, or reports that there are no GPUs.
    pub fn open(mut search: Search) -> Result<Self> {
        let library = search.load(&NVML).with_context(|| search.searched().join("; "))?;
        let mut nvml = Self::bind(&library).map_err(|e| anyhow!("libnvidia-ml lacks a function: {e}"))?;
        // SAFETY: the types are those of nvml.h; the library is never unloaded.
        unsafe {
            let init: unsafe extern "C" fn() -> c_int = *library.get("nvmlInit_v2")?;
            let text: unsafe extern "C" fn(c_int) -> *const c_char = *library.get("nvmlErrorString")?;
            let count: unsafe extern "C" fn(*mut c_uint) -> c_int = *library.get("nvmlDeviceGetCount_v2")?;
            let by_index: unsafe extern "C" fn(c_uint, *mut *mut c_void) -> c_int =
                *library.get("nvmlDeviceGetHandleByIndex_v2")?;
            let code = init();
            if code != 0 {
                let text = CStr::from_ptr(text(code)).to_string_lossy().into_owned();
                std::mem::forget((library, nvml));
                bail!("NVML does not start: {text} ({code})");
            }
            let mut devices = 0;
            count(&raw mut devices);
            for index in 0..devices {
                let mut device = std::ptr::null_mut();
                if by_index(index, &raw mut device) == 0 {
                    nvml.devices.push(Device(device));
                }
            }
        }
        std::mem::forget(library);
        if nvml.devices.is_empty() {
            bail!("NVML found no GPU");
        }
        Ok(nvml)
    }

    fn bind(library: &Library) -> Result<Self, libloading::Error> {
        // SAFETY: the types are those of nvml.h; the caller keeps the library loaded.
        unsafe {
            Ok(Self {
                shutdown: *library.get("nvmlShutdown")?,
                driver_version: *library.get("nvmlSystemGetDriverVersion")?,
                name: *library.get("nvmlDeviceGetName")?,
                uuid: *library.get("nvmlDeviceGetUUID")?,
                utilization: *library.get("nvmlDeviceGetUtilizationRates")?,
                memory: *library.get("nvmlDeviceGetMemoryInfo")?,
                clock: *library.get("nvmlDeviceGetClockInfo")?,
                power: *library.get("nvmlDeviceGetPowerUsage")?,
                energy: *library.get("nvmlDeviceGetTotalEnergyConsumption")?,
                pcie: *library.get("nvmlDeviceGetPcieThroughput")?,
                temperature: *library.get("nvmlDeviceGetTemperature")?,
                devices: Vec::new(),
            })
        }
    }

    /// Returns the GPUs, in NVML's order.
    pub fn identities(&self) -> Vec<Identity> {
        let text = |fill: &dyn Fn(*mut c_char, c_uint) -> c_int| {
            let mut text: [c_char; TEXT] = [0; TEXT];
            if fill(text.as_mut_ptr(), TEXT as c_uint) != 0 {
                return "unknown".to_owned();
            }
            text[TEXT - 1] = 0;
            // SAFETY: the array ends in a zero.
            unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned()
        };
        // SAFETY: the buffer is as long as said; below, the device is one that NVML gave.
        let driver = text(&|at, len| unsafe { (self.driver_version)(at, len) });
        let devices = self.devices.iter().map(|device| Identity {
            // SAFETY: as above.
            name: text(&|at, len| unsafe { (self.name)(device.0, at, len) }),
            // SAFETY: as above.
            uuid: text(&|at, len| unsafe { (self.uuid)(device.0, at, len) }),
            driver: driver.clone(),
        });
        devices.collect()
    }

    /// Samples every GPU, in the same order. Takes about 40 ms per GPU: NVML measures the bus during the call.
    pub fn sample(&self) -> Vec<GpuSample> {
        self.devices.iter().map(|device| self.sample_device(device.0)).collect()
    }

    fn sample_device(&self, device: *mut c_void) -> GpuSample {
        let number = |call: Number| {
            // Two numbers, for a call that fills two.
            let mut values = [0; 2];
            // SAFETY: the array has room for what the calls given here fill.
            (unsafe { call(device, values.as_mut_ptr()) } == 0).then_some(values[0])
        };
        let number_of = |call: NumberOf, which: c_int| {
            let mut value = 0;
            // SAFETY: the pointer is to a local.
            (unsafe { call(device, which, &raw mut value) } == 0).then_some(f64::from(value))
        };
        let (mut memory, mut millijoules) = ([0_u64; 3], 0_u64);
        // SAFETY: the array has room for the three numbers of `nvmlMemory_t`.
        let has_memory = unsafe { (self.memory)(device, memory.as_mut_ptr()) } == 0;
        // SAFETY: the pointer is to a local.
        let has_energy = unsafe { (self.energy)(device, &raw mut millijoules) } == 0;
        let mega = |mhz: f64| mhz * 1e6;
        let kilo = |kb_per_s: f64| kb_per_s * 1e3;
        GpuSample {
            busy_share: number(self.utilization).map(|percent| f64::from(percent) / 100.0),
            memory_bytes: has_memory.then_some((memory[2], memory[0])),
            sm_clock_hz: number_of(self.clock, CLOCKS[0]).map(mega),
            memory_clock_hz: number_of(self.clock, CLOCKS[1]).map(mega),
            power_watts: number(self.power).map(|milliwatts| f64::from(milliwatts) / 1e3),
            energy_joules: has_energy.then_some(millijoules as f64 / 1e3),
            pcie_received: number_of(self.pcie, PCIE_RECEIVED).map(kilo),
            pcie_sent: number_of(self.pcie, PCIE_SENT).map(kilo),
            temperature_celsius: number_of(self.temperature, SENSOR_GPU),
        }
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        // SAFETY: takes nothing; initialised once in `open`.
        unsafe { (self.shutdown)() };
    }
}
