//! What systemd is told: ready, reloading, stopping, and that the guard is still alive.
//!
//! Speaks the protocol as systemd 245 knows it. Without a `NOTIFY_SOCKET` every message goes nowhere, which is how the
//! daemon runs by hand.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sd_notify::NotifyState;

use super::boot_clock;

/// The pulse of the thread that must not hang: the one that runs inference. Cheap to clone.
///
/// That thread calls [`Heartbeat::beat`] between any two steps of its work and at least every eighth of the watchdog's
/// interval while it is idle. Whoever else beat it would keep a dead guard looking alive.
#[derive(Debug, Clone, Default)]
pub struct Heartbeat(Arc<AtomicU64>);

impl Heartbeat {
    /// The worker is alive now.
    pub fn beat(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Beats so far.
    #[must_use]
    pub fn beats(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// When systemd is to be told that the guard is alive: every half interval, and only while the heart beats. A worker
/// that is stuck in one step for less than three quarters of the interval is not taken for dead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watchdog {
    interval: Duration,
    pinged: Option<(Duration, u64)>,
}

impl Watchdog {
    /// A watchdog that bites after `interval` of silence.
    #[must_use]
    pub const fn new(interval: Duration) -> Self {
        Self { interval, pinged: None }
    }

    /// How often [`Watchdog::due`] is to be asked: every quarter of the interval, and at least every millisecond.
    #[must_use]
    pub fn tick(&self) -> Duration {
        (self.interval / 4).max(Duration::from_millis(1))
    }

    /// Whether a ping is due, given the time and the beats so far. Says yes once for each ping.
    pub fn due(&mut self, now: Duration, beats: u64) -> bool {
        // A timer may fire a little early; an eighth is far from both the half and the next tick.
        let pause = self.interval * 3 / 8;
        let due = self.pinged.is_none_or(|(then, beaten)| beats != beaten && now.saturating_sub(then) >= pause);
        if due {
            self.pinged = Some((now, beats));
        }
        due
    }
}

/// The line to systemd.
#[derive(Debug, Clone)]
pub struct Readiness {
    watchdog: Option<Duration>,
}

impl Readiness {
    /// Reads what systemd put in the environment. A `WATCHDOG_USEC` without `WATCHDOG_PID` counts as meant for us.
    #[must_use]
    pub fn from_environment() -> Self {
        Self { watchdog: sd_notify::watchdog_enabled().filter(|interval| !interval.is_zero()) }
    }

    /// The watchdog's interval, where there is one.
    #[must_use]
    pub const fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// The guard judges from now on. Say it after the warm-up inference, not before.
    ///
    /// # Errors
    /// When systemd cannot be told; it would then end the daemon as one that never started.
    pub fn ready(&self, status: &str) -> io::Result<()> {
        sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(&one_line(status))])
    }

    /// Constitution and calibration are being read again; follow it by [`Readiness::ready`] whatever comes of it.
    ///
    /// # Errors
    /// When systemd cannot be told.
    pub fn reloading(&self) -> io::Result<()> {
        // Since 253 systemd wants the time beside it; 245 passes over what it does not know.
        sd_notify::notify(&[NotifyState::Reloading, NotifyState::monotonic_usec_now()?])
    }

    /// The daemon is going away.
    ///
    /// # Errors
    /// When systemd cannot be told.
    pub fn stopping(&self) -> io::Result<()> {
        sd_notify::notify(&[NotifyState::Stopping])
    }

    /// One line for `systemctl status`.
    ///
    /// # Errors
    /// When systemd cannot be told.
    pub fn status(&self, status: &str) -> io::Result<()> {
        sd_notify::notify(&[NotifyState::Status(&one_line(status))])
    }

    /// Pings the watchdog for as long as the heart beats; never returns. Run it on the runtime that also serves the
    /// bus: then a runtime that is stuck stops the pings as well.
    pub async fn keep_alive(&self, heartbeat: Heartbeat) {
        let Some(interval) = self.watchdog else {
            return std::future::pending().await;
        };
        let mut watchdog = Watchdog::new(interval);
        let mut ticks = tokio::time::interval(watchdog.tick());
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if watchdog.due(boot_clock(), heartbeat.beats()) {
                // The socket may be full; only this task is to wait for it then.
                let ping = tokio::task::spawn_blocking(|| sd_notify::notify(&[NotifyState::Watchdog])).await;
                if let Ok(Err(error)) = ping {
                    tracing::warn!(%error, "the watchdog cannot be pinged");
                }
            }
        }
    }
}

/// A line break would start another assignment.
fn one_line(status: &str) -> String {
    status.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(500);

    /// The times, in ticks, at which pings go out while the worker beats as told.
    fn pings(beats_at: impl Fn(u32) -> bool) -> Vec<u32> {
        let (mut watchdog, heart) = (Watchdog::new(INTERVAL), Heartbeat::default());
        let mut at = vec![];
        for tick in 0..20 {
            if beats_at(tick) {
                heart.beat();
            }
            let now = Duration::from_secs(100) + watchdog.tick() * tick;
            if watchdog.due(now, heart.beats()) {
                at.push(tick);
            }
        }
        at
    }

    #[test]
    fn a_live_worker_is_reported_every_half_interval() {
        assert_eq!(pings(|_| true), [0, 2, 4, 6, 8, 10, 12, 14, 16, 18]);
    }

    #[test]
    fn a_stuck_worker_is_not_reported() {
        assert_eq!(pings(|tick| tick < 5), [0, 2, 4]);
        assert_eq!(pings(|_| false), [0], "one ping at the start, while the models load");
    }

    #[test]
    fn a_slow_step_is_reported_as_soon_as_it_is_over() {
        // Beats at ticks 0 and 3: three quarters of the interval in one step, and no gap as long as the interval.
        let at = pings(|tick| tick % 3 == 0);
        assert!(at.windows(2).all(|pair| pair[1] - pair[0] < 4), "{at:?}");
    }

    #[test]
    fn timers_that_fire_a_little_early_lose_no_ping() {
        let mut watchdog = Watchdog::new(INTERVAL);
        assert!(watchdog.due(Duration::from_millis(1_000), 1));
        assert!(watchdog.due(Duration::from_millis(1_249), 2));
    }

    #[test]
    fn a_status_cannot_forge_an_assignment() {
        assert_eq!(one_line("fine\nREADY=1"), "fine READY=1");
    }
}
