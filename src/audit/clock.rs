//! The time that records carry. Passed in wherever it is needed, so that tests can hold it still.

use std::fmt;
use std::fs;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, Timespec, clock_gettime};

use super::record::Stamp;

/// Tells the time on both clocks.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Stamp + Send + Sync>);

impl Clock {
    /// A clock that asks this function.
    #[must_use]
    pub fn new(now: impl Fn() -> Stamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The system's clocks.
    ///
    /// # Errors
    /// When the kernel does not say which boot this is.
    pub fn system() -> io::Result<Self> {
        let boot_id: String =
            fs::read_to_string("/proc/sys/kernel/random/boot_id")?.chars().filter(char::is_ascii_hexdigit).collect();
        if boot_id.len() != 32 {
            return Err(io::Error::other("the boot's id is not 32 hexadecimal digits"));
        }
        Ok(Self::new(move || Stamp {
            wall_ns: u64::try_from(wall_clock().as_nanos()).unwrap_or(u64::MAX),
            boot_ns: nanoseconds(clock_gettime(ClockId::Boottime)),
            boot_id: boot_id.clone(),
        }))
    }

    /// The time now.
    #[must_use]
    pub fn now(&self) -> Stamp {
        (self.0)()
    }
}

/// Time since 1970-01-01 UTC by the wall clock, which people and networks set; a time before counts as its beginning.
#[must_use]
pub fn wall_clock() -> Duration {
    #[expect(clippy::disallowed_methods, reason = "the system's clock is what this hands on")]
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

/// A time before 1970 counts as its beginning.
fn nanoseconds(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_moves_on_and_knows_its_boot() {
        let clock = Clock::system().expect("a clock");
        let (before, after) = (clock.now(), clock.now());
        assert!(after.boot_ns >= before.boot_ns && before.boot_ns > 0);
        assert!(before.wall_ns > 1_500_000_000_000_000_000);
        assert_eq!(before.boot_id.len(), 32);
    }
}
