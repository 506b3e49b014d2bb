//! Progress of long work: a bar on a terminal; in a log or a job's output a line on standard error now and then.

use std::io::Write as _;
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressStyle};

/// How often a line is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(60);

/// How far the work is.
pub(super) struct Meter {
    bar: ProgressBar,
    unit: &'static str,
    said: Duration,
}

impl Meter {
    /// Nothing done yet, of things with this name in the plural.
    pub(super) fn new(unit: &'static str) -> anyhow::Result<Self> {
        let style = ProgressStyle::with_template("{prefix} {bar:32} {pos}/{len} {msg}, {eta} left")?;
        let bar = ProgressBar::new(0).with_style(style).with_message(unit);
        Ok(Self { bar, unit, said: Duration::ZERO })
    }

    /// So many are done, of so many in this stage.
    pub(super) fn at(&mut self, stage: &'static str, done: u64, of: u64) {
        self.bar.set_prefix(stage);
        self.bar.set_length(of);
        self.bar.set_position(done);
        let now = self.bar.elapsed();
        if self.bar.is_hidden() && now.saturating_sub(self.said) >= LINE_EVERY {
            self.said = now;
            let left = HumanDuration(self.bar.eta());
            // Nobody who reads it: then nobody misses it.
            drop(writeln!(std::io::stderr(), "{}", line(stage, self.unit, done, of, &left.to_string())));
        }
    }

    /// Takes the bar away.
    pub(super) fn end(self) {
        self.bar.finish_and_clear();
    }
}

fn line(stage: &str, unit: &str, done: u64, of: u64, left: &str) -> String {
    let stage = if stage.is_empty() { String::new() } else { format!("{stage}: ") };
    format!("{stage}{done} of {of} {unit}, about {left} left")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_is_done_and_what_is_left() {
        assert_eq!(line("refusals", "tasks", 3, 133, "2 hours"), "refusals: 3 of 133 tasks, about 2 hours left");
        assert_eq!(line("", "rows", 1, 2, "1 minute"), "1 of 2 rows, about 1 minute left");
    }
}
