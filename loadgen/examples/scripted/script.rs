//! Service times and stalls with known percentiles. In: the count and arrival time of a request. Out: the time of its
//! reply. Pure; the server keeps the time, and [`Script::truth_us`] returns the percentiles that an open-loop client
//! must find.
//!
//! - constant: every request takes [`SERVICE`]
//! - lognormal: median [`SERVICE`], sigma [`SIGMA`]. Request k takes the quantile `frac(k φ)`: a sequence of low
//!   discrepancy (Weyl), so that every stretch of n requests has the distribution's percentiles within about 1/n, and a
//!   step of seconds can be compared with the exact distribution
//! - stall: every request takes [`SERVICE`]; for [`STALL`] at the start of every [`PERIOD`] no request is begun.
//!   Waiting requests then begin one by one, [`DRAIN_GAP`] apart, first come first served, as a queue drains

use std::str::FromStr;
use std::time::Duration;

pub(crate) const SERVICE: Duration = Duration::from_millis(20);
pub(crate) const SIGMA: f64 = 0.5;
pub(crate) const STALL: Duration = Duration::from_millis(600);
pub(crate) const PERIOD: Duration = Duration::from_millis(5_600);
/// Ten thousand per second, far above the measured rates.
pub(crate) const DRAIN_GAP: Duration = Duration::from_micros(100);
/// Reciprocal of the golden ratio: the Weyl sequence with the most even spread.
const STEP: f64 = 0.618_033_988_749_894_9;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Script {
    Constant,
    Lognormal,
    Stall,
}

impl FromStr for Script {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match text {
            "constant" => Ok(Self::Constant),
            "lognormal" => Ok(Self::Lognormal),
            "stall" => Ok(Self::Stall),
            _ => anyhow::bail!("constant, lognormal or stall"),
        }
    }
}

/// State of a script: the replies scheduled so far.
#[derive(Debug)]
pub(crate) struct Player {
    script: Script,
    requests: u64,
    /// Begin of the last request.
    begun: Option<Duration>,
}

impl Player {
    pub(crate) fn new(script: Script) -> Self {
        Self {
            script,
            requests: 0,
            begun: None,
        }
    }

    /// Returns the reply time of the next request, which arrives `arrival` after the start. Arrivals must not go back.
    pub(crate) fn answered(&mut self, arrival: Duration) -> Duration {
        let count = self.requests;
        self.requests += 1;
        match self.script {
            Script::Constant => arrival + SERVICE,
            Script::Lognormal => arrival + lognormal((count as f64 * STEP).fract()),
            Script::Stall => {
                let earliest = arrival + stalled_for(arrival);
                let turn = self.begun.map_or(earliest, |begun| earliest.max(begun + DRAIN_GAP));
                self.begun = Some(turn);
                turn + SERVICE
            }
        }
    }
}

/// Returns the rest of a stall at `at`.
fn stalled_for(at: Duration) -> Duration {
    let into = Duration::from_nanos((at.as_nanos() % PERIOD.as_nanos()) as u64);
    STALL.saturating_sub(into)
}

fn lognormal(quantile: f64) -> Duration {
    SERVICE.mul_f64((SIGMA * normal(quantile)).exp())
}

/// Quantile of the standard normal by Acklam's rational approximation (2003; relative error below 1.2e-9). Its argument
/// is kept at least 1e-4 away from 0 and 1, so that no request takes longer than 129 ms.
fn normal(quantile: f64) -> f64 {
    const A: [f64; 6] = [
        -3.969_683_028_665_376e1,
        2.209_460_984_245_205e2,
        -2.759_285_104_469_687e2,
        1.383_577_518_672_69e2,
        -3.066_479_806_614_716e1,
        2.506_628_277_459_239,
    ];
    const B: [f64; 5] = [
        -5.447_609_879_822_406e1,
        1.615_858_368_580_409e2,
        -1.556_989_798_598_866e2,
        6.680_131_188_771_972e1,
        -1.328_068_155_288_572e1,
    ];
    const C: [f64; 6] = [
        -7.784_894_002_430_293e-3,
        -3.223_964_580_411_365e-1,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    const D: [f64; 4] = [
        7.784_695_709_041_462e-3,
        3.224_671_290_700_398e-1,
        2.445_134_137_142_996,
        3.754_408_661_907_416,
    ];
    let polynomial = |coefficients: &[f64], x: f64| coefficients.iter().fold(0.0, |sum, c| sum * x + c);
    let p = quantile.clamp(1e-4, 1.0 - 1e-4);
    let tail = p.min(1.0 - p);
    if tail < 0.024_25 {
        let q = (-2.0 * tail.ln()).sqrt();
        let low = polynomial(&C, q) / (polynomial(&D, q) * q + 1.0);
        return if p < 0.5 { low } else { -low };
    }
    let q = p - 0.5;
    let r = q * q;
    polynomial(&A, r) * q / (polynomial(&B, r) * r + 1.0)
}

impl Script {
    /// Returns p50, p95 and p99 in microseconds: exact, or for stalls by playing the script to evenly spread arrivals
    /// over a whole period.
    pub(crate) fn truth_us(self, rate: f64) -> [f64; 3] {
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        match self {
            Self::Constant => [us(SERVICE); 3],
            Self::Lognormal => [0.5, 0.95, 0.99].map(|quantile| us(lognormal(quantile))),
            Self::Stall => {
                let mut player = Player::new(self);
                let period_s = PERIOD.as_secs_f64();
                let mut waits: Vec<Duration> = (0..(rate * period_s) as u64)
                    .map(|i| Duration::from_secs_f64((i as f64 + 0.5) / rate))
                    .map(|arrival| player.answered(arrival) - arrival)
                    .collect();
                waits.sort_unstable();
                [0.5_f64, 0.95, 0.99]
                    .map(|quantile| us(waits[((quantile * waits.len() as f64).ceil() as usize).max(1) - 1]))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_stretch_of_the_lognormal_has_its_percentiles() {
        let mut player = Player::new(Script::Lognormal);
        for _ in 0..777 {
            player.answered(Duration::ZERO);
        }
        let mut times: Vec<Duration> = (0..1_500).map(|_| player.answered(Duration::ZERO)).collect();
        times.sort_unstable();
        let truth = Script::Lognormal.truth_us(200.0);
        for (quantile, truth_us) in [0.5_f64, 0.95, 0.99].into_iter().zip(truth) {
            let found_us = times[(quantile * 1_500.0).ceil() as usize - 1].as_secs_f64() * 1e6;
            assert!(
                (found_us / truth_us - 1.0).abs() < 0.02,
                "{quantile}: {found_us} is not {truth_us}"
            );
        }
    }

    #[test]
    fn the_normal_quantile_is_that_of_the_tables() {
        for (quantile, expected) in [
            (0.5, 0.0),
            (0.95, 1.644_853_627),
            (0.99, 2.326_347_874),
            (0.001, -3.090_232_306),
        ] {
            assert!(
                (normal(quantile) - expected).abs() < 1e-8,
                "{quantile}: {}",
                normal(quantile)
            );
        }
    }

    #[test]
    fn a_stall_without_a_crowd_is_the_arithmetic() {
        // L(q) = service + stall - (1 - q) period, except for the gaps of the drain and the spacing of the arrivals.
        let [p50_us, p95_us, p99_us] = Script::Stall.truth_us(50.0);
        assert!((p50_us - 20_000.0).abs() < 1.0, "{p50_us}");
        assert!((p95_us - 340_000.0).abs() < 25_000.0, "{p95_us}");
        assert!((p99_us - 564_000.0).abs() < 25_000.0, "{p99_us}");
    }

    #[test]
    fn a_crowd_is_let_in_one_by_one() {
        let mut player = Player::new(Script::Stall);
        let first = player.answered(Duration::from_millis(1));
        let second = player.answered(Duration::from_millis(1));
        let after = player.answered(Duration::from_millis(3_000));
        assert_eq!(first, STALL + SERVICE);
        assert_eq!(second, STALL + SERVICE + DRAIN_GAP);
        assert_eq!(after, Duration::from_millis(3_000) + SERVICE);
    }
}
